//! What a result depends on besides the numbers that went in.
//!
//! Answers: which system, processor and memory, how many threads, which switches in the
//! environment change numbers, which commit. It stands in every recording, so that two
//! recordings that differ can be told apart by where they were made.
//!
//! A recording is meant to be published (CI artefacts, committed reference recordings), so
//! nothing that identifies a person or a machine enters by default: host name, user name
//! and home path are replaced by placeholders of fixed text (`[home]`, `[user]`,
//! `[host]`). The losing option, hashing them, still links recordings of one person and is
//! reversible by guessing.

mod facts;
mod redact;
mod system;

pub use facts::{Environment, Identity, RELEVANT_VARIABLES};
pub use redact::Redaction;
pub use system::free_memory_bytes;
