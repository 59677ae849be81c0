"""Reports about releases: page, privacy statement and label, registry record, verification, and plans."""
