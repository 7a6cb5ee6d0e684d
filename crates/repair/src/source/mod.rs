//! The plan as a unified diff of the source.
