//! Everything that can be wrong with a checkpoint.

use std::fmt;
use std::path::PathBuf;

use crate::numerics::DType;
use crate::tensor::safetensors::FileError;

/// A checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// Neither a model file nor an index lies there.
    #[error("`{path}` holds no `model.safetensors` and no `model.safetensors.index.json`; {hint}")]
    NoModel {
        /// The model directory.
        path: PathBuf,
        /// What to do, after a look at what lies there.
        hint: String,
    },
    /// A file is not sound.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file without tensors.
    #[error("`{path}` holds metadata only and no tensor; point to the file with the weights")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A tensor without elements.
    #[error("`{path}`: the tensor `{key}` has shape {shape:?} and no elements; export the model again")]
    ZeroSized {
        /// The file.
        path: PathBuf,
        /// The tensor.
        key: String,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// The index cannot be read.
    #[error("cannot read `{path}`: {source}; check its permissions")]
    IndexIo {
        /// The index file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The index is not the expected JSON.
    #[error("`{path}` is not a checkpoint index: {reason}; fetch it again")]
    IndexJson {
        /// The index file.
        path: PathBuf,
        /// What the parser said.
        reason: String,
    },
    /// A key stands in the index twice.
    #[error("`{path}` lists the key `{key}` twice; keep the line that names the right shard")]
    IndexDuplicateKey {
        /// The index file.
        path: PathBuf,
        /// The key.
        key: String,
    },
    /// The index names a file outside its own folder.
    #[error("`{path}` names the shard `{shard}`, which is not a plain file name; put it beside the index")]
    ShardName {
        /// The index file.
        path: PathBuf,
        /// As the index has it.
        shard: String,
    },
    /// A shard that the index names is not there.
    #[error("the shard `{path}`, which holds `{key}`, is missing; fetch it again")]
    MissingShard {
        /// The shard.
        path: PathBuf,
        /// First key that the index places in it.
        key: String,
    },
    /// A shard lies beside the index that the index does not name.
    #[error("the shard `{path}` is not in the index; remove it, or fetch the index that belongs to it")]
    ShardNotIndexed {
        /// The shard.
        path: PathBuf,
    },
    /// Two shards hold the same key.
    #[error("the key `{key}` is in two shards, `{first}` and `{second}`; remove one of them")]
    KeyInTwoShards {
        /// The key.
        key: String,
        /// One shard.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// The index places a key in a shard that does not hold it.
    #[error("the index places `{key}` in `{path}`, which does not hold it; fetch index and shards again")]
    KeyNotInShard {
        /// The key.
        key: String,
        /// The shard.
        path: PathBuf,
    },
    /// A shard holds a key that the index does not list.
    #[error("`{path}` holds `{key}`, which the index does not list; fetch index and shards again")]
    KeyNotIndexed {
        /// The key.
        key: String,
        /// The shard.
        path: PathBuf,
    },
    /// Keys, shapes or dtypes are not the program's.
    #[error(
        "`{path}` does not fit the model that its config describes:\n{problems}\n\
         use the checkpoint that belongs to this config.json, or correct the config"
    )]
    Mismatch {
        /// The model directory.
        path: PathBuf,
        /// All of them.
        problems: KeyProblems,
    },
}

/// One key that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyProblem {
    /// The program needs it, the checkpoint lacks it.
    Missing {
        /// The key.
        key: String,
        /// Shape that is needed.
        shape: Vec<usize>,
    },
    /// The checkpoint has it, the program does not know it.
    Unexpected {
        /// The key.
        key: String,
        /// Shape that was found.
        shape: Vec<usize>,
    },
    /// Another shape.
    Misshaped {
        /// The key.
        key: String,
        /// Shape that is needed.
        expected: Vec<usize>,
        /// Shape that was found.
        found: Vec<usize>,
    },
    /// Integers where floating point is needed, or the other way round.
    WrongDType {
        /// The key.
        key: String,
        /// What is needed.
        expected: DType,
        /// What was found.
        found: DType,
    },
}

impl KeyProblem {
    const fn kind(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "missing",
            Self::Unexpected { .. } => "unexpected",
            Self::Misshaped { .. } => "of another shape",
            Self::WrongDType { .. } => "of another dtype",
        }
    }
}

impl fmt::Display for KeyProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { key, shape } | Self::Unexpected { key, shape } => write!(f, "{key} {shape:?}"),
            Self::Misshaped { key, expected, found } => {
                write!(f, "{key} {found:?}, the model has {expected:?}")
            }
            Self::WrongDType { key, expected, found } => {
                let class = if expected.is_float() { "floating point" } else { "integers" };
                write!(f, "{key} {found}, the model has {class}")
            }
        }
    }
}

/// The whole list, sorted by kind and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyProblems(pub Vec<KeyProblem>);

impl KeyProblems {
    /// Lines of one kind that are shown before the rest is counted.
    const SHOWN: usize = 20;
}

impl fmt::Display for KeyProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for group in self.0.chunk_by(|a, b| a.kind() == b.kind()) {
            let separator = if first { "" } else { "\n" };
            first = false;
            let kind = group.first().map_or("", KeyProblem::kind);
            let noun = if group.len() == 1 { "key" } else { "keys" };
            write!(f, "{separator}  {} {noun} {kind}:", group.len())?;
            for problem in group.iter().take(Self::SHOWN) {
                write!(f, "\n    {problem}")?;
            }
            if group.len() > Self::SHOWN {
                write!(f, "\n    and {} more", group.len() - Self::SHOWN)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_counted_beyond_twenty() {
        let missing = |i: usize| KeyProblem::Missing { key: format!("k{i:02}"), shape: vec![1] };
        let mut problems: Vec<_> = (0..23).map(missing).collect();
        problems.push(KeyProblem::Misshaped { key: "w".to_owned(), expected: vec![2], found: vec![3] });
        let text = KeyProblems(problems).to_string();
        assert!(text.starts_with("  23 keys missing:\n    k00 [1]\n"), "{text}");
        assert!(
            text.contains("k19 [1]\n    and 3 more\n  1 key of another shape:\n    w [3], the model has [2]"),
            "{text}"
        );
    }
}
