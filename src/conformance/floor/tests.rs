//! The floor of known cases.
