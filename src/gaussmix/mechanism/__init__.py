"""The line between sensitive and private: every draw of noise, and the order in which a release is made."""
