//! YAML text to JSON values.
