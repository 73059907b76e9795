//! `model.safetensors.index.json`: which key is in which shard.

use std::fmt;
use std::path::Path;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::CheckpointError;

/// Longest index that is read: a million keys stay far below.
const MAX_INDEX_BYTES: u64 = 256 << 20;

#[derive(Deserialize)]
struct File {
    weight_map: Pairs,
}

/// A JSON object of strings as it stands, repeated keys included.
struct Pairs(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object from key to shard")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// Key and shard file name, sorted by key; keys are unique and names are plain file names.
pub(super) fn read(path: &Path) -> Result<Vec<(String, String)>, CheckpointError> {
    let io = |source| CheckpointError::IndexIo { path: path.to_path_buf(), source };
    let json = |reason| CheckpointError::IndexJson { path: path.to_path_buf(), reason };
    let bytes = std::fs::metadata(path).map_err(io)?.len();
    if bytes > MAX_INDEX_BYTES {
        return Err(json(format!("it is {bytes} bytes long, an index has at most {MAX_INDEX_BYTES}")));
    }
    let text = std::fs::read(path).map_err(io)?;
    let File { weight_map: Pairs(mut pairs) } =
        serde_json::from_slice(&text).map_err(|e| json(e.to_string()))?;
    if pairs.is_empty() {
        return Err(json("its weight_map is empty".to_owned()));
    }
    pairs.sort();
    if let Some(pair) = pairs.windows(2).find(|pair| matches!(pair, [a, b] if a.0 == b.0)) {
        let key = pair.first().map(|p| p.0.clone()).unwrap_or_default();
        return Err(CheckpointError::IndexDuplicateKey { path: path.to_path_buf(), key });
    }
    let is_plain = |name: &str| Path::new(name).file_name().is_some_and(|file| file == name);
    if let Some((_, shard)) = pairs.iter().find(|(_, shard)| !is_plain(shard)) {
        return Err(CheckpointError::ShardName { path: path.to_path_buf(), shard: shard.clone() });
    }
    Ok(pairs)
}
