//! [`Checkpoint`]: opening one file or all shards.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::{CheckpointError, index};
use crate::program::ProgramInput;
use crate::tensor::HostTensor;
use crate::tensor::safetensors::{FileFault, SafetensorsFile, TensorEntry};

/// File with all weights.
pub const MODEL_FILE: &str = "model.safetensors";
/// List of the shards.
pub const INDEX_FILE: &str = "model.safetensors.index.json";

/// A file of the checkpoint.
pub type Shard = SafetensorsFile;

/// The mapped weights of a model directory. Cloning shares the mappings.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    path: PathBuf,
    shards: Vec<Shard>,
    /// Key to shard and position in it.
    keys: BTreeMap<String, (usize, usize)>,
}

impl Checkpoint {
    /// Opens `model.safetensors` in `path`, or the shards of `model.safetensors.index.json`
    /// (the single file wins where both exist, as for other readers of this layout). A path
    /// to one `.safetensors` file opens that file.
    ///
    /// # Errors
    /// If nothing is there, or a file or the index is not sound.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        let (single, index) = (path.join(MODEL_FILE), path.join(INDEX_FILE));
        let shards = if path.is_dir() {
            if single.exists() {
                vec![Shard::open(&single)?]
            } else if index.exists() {
                let pairs = index::read(&index)?;
                open_shards(path, &pairs)?
            } else {
                return Err(CheckpointError::NoModel { path: path.to_path_buf(), hint: hint(path) });
            }
        } else {
            vec![Shard::open(path)?]
        };
        let mut keys = BTreeMap::new();
        for (number, shard) in shards.iter().enumerate() {
            for (position, entry) in shard.entries().iter().enumerate() {
                if entry.shape.contains(&0) {
                    return Err(CheckpointError::ZeroSized {
                        path: shard.path().to_path_buf(),
                        key: entry.name.clone(),
                        shape: entry.shape.clone(),
                    });
                }
                keys.insert(entry.name.clone(), (number, position));
            }
        }
        match shards.first() {
            Some(first) if keys.is_empty() => {
                Err(CheckpointError::Empty { path: first.path().to_path_buf() })
            }
            _ => Ok(Self { path: path.to_path_buf(), shards, keys }),
        }
    }

    /// Model directory (or file) that was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files, in order of their names.
    #[must_use]
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// All keys, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.keys().map(String::as_str)
    }

    /// The entry of a key.
    #[must_use]
    pub fn entry(&self, key: &str) -> Option<&TensorEntry> {
        let (shard, position) = self.keys.get(key)?;
        self.shards.get(*shard)?.entries().get(*position)
    }

    /// The tensor of a key as it is stored, over the mapped bytes.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<HostTensor> {
        let (shard, position) = self.keys.get(key)?;
        let shard = self.shards.get(*shard)?;
        shard.view(shard.entries().get(*position)?)
    }

    /// The tensor of a program input as it is stored: under its own key, else under the first
    /// alias that is there. `Some` for every parameter and buffer once [`Checkpoint::check`]
    /// has accepted the program.
    #[must_use]
    pub fn tensor(&self, input: &ProgramInput) -> Option<HostTensor> {
        self.stored_key(input).and_then(|key| self.get(key))
    }

    /// The key under which a program input is stored.
    #[must_use]
    pub fn stored_key<'a>(&self, input: &'a ProgramInput) -> Option<&'a str> {
        std::iter::once(&input.name)
            .chain(&input.aliases)
            .map(String::as_str)
            .find(|key| self.keys.contains_key(*key))
    }

    /// Number of parameters and buffers: elements of all tensors.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.shards.iter().flat_map(Shard::entries).map(|e| e.shape.iter().product::<usize>()).sum()
    }
}

/// Opens every shard that the index names and holds index and shards against each other.
fn open_shards(dir: &Path, pairs: &[(String, String)]) -> Result<Vec<Shard>, CheckpointError> {
    let names: BTreeSet<&str> = pairs.iter().map(|(_, shard)| shard.as_str()).collect();
    let mut shards = Vec::with_capacity(names.len());
    let mut homes: BTreeMap<String, PathBuf> = BTreeMap::new();
    for name in &names {
        let path = dir.join(name);
        let shard = Shard::open(&path).map_err(|error| match error.fault {
            FileFault::NotFound => {
                let key = pairs.iter().find(|(_, shard)| shard == name).map(|(key, _)| key.clone());
                CheckpointError::MissingShard { path: path.clone(), key: key.unwrap_or_default() }
            }
            _ => error.into(),
        })?;
        if shard.entries().is_empty() {
            return Err(CheckpointError::Empty { path });
        }
        for entry in shard.entries() {
            if let Some(first) = homes.insert(entry.name.clone(), path.clone()) {
                return Err(CheckpointError::KeyInTwoShards { key: entry.name.clone(), first, second: path });
            }
        }
        shards.push(shard);
    }
    for (key, name) in pairs {
        let path = dir.join(name);
        if homes.get(key) != Some(&path) {
            return Err(CheckpointError::KeyNotInShard { key: key.clone(), path });
        }
    }
    let listed: BTreeSet<&str> = pairs.iter().map(|(key, _)| key.as_str()).collect();
    if let Some((key, path)) = homes.iter().find(|(key, _)| !listed.contains(key.as_str())) {
        return Err(CheckpointError::KeyNotIndexed { key: key.clone(), path: path.clone() });
    }
    match file_names(dir).into_iter().find(|name| is_shard_name(name) && !names.contains(name.as_str())) {
        Some(stray) => Err(CheckpointError::ShardNotIndexed { path: dir.join(stray) }),
        None => Ok(shards),
    }
}

/// `NAME-00001-of-00002.safetensors`.
fn is_shard_name(name: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    name.strip_suffix(".safetensors")
        .and_then(|stem| stem.rsplit_once("-of-"))
        .and_then(|(head, total)| Some((head.rsplit_once('-')?.1, total)))
        .is_some_and(|(number, total)| digits(number) && digits(total))
}

/// Names of what lies in a folder, sorted; empty where it cannot be listed.
fn file_names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// What to do about a folder without a checkpoint.
fn hint(dir: &Path) -> String {
    let names = file_names(dir);
    let ends = |suffix: &str| {
        names.iter().find(|name| Path::new(name).extension().is_some_and(|e| e.eq_ignore_ascii_case(suffix)))
    };
    if let Some(name) = ends("safetensors") {
        format!("it holds `{name}`: rename that to `{MODEL_FILE}`, or fetch the index of the shards")
    } else if let Some(name) = ["bin", "pt", "pth", "ckpt"].into_iter().find_map(ends) {
        format!("it holds `{name}`: convert that with `safetensors.torch.save_file`")
    } else {
        "check the path, or make a model with `parity synth`".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_names_are_recognised() {
        assert!(is_shard_name("model-00001-of-00002.safetensors"));
        assert!(is_shard_name("my-model-1-of-2.safetensors"));
        for name in
            ["model.safetensors", "validation.safetensors", "model-a-of-2.safetensors", "x-1-of-2.bin"]
        {
            assert!(!is_shard_name(name), "{name}");
        }
    }
}
