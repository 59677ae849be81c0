"""The values of a release: certificate, transcript, file format, and post-processing of noisy outputs."""
