//! Content hash: what the weights are, wherever they lie.

use std::collections::BTreeMap;

use blake3::Hash;
use rayon::prelude::*;

use super::Checkpoint;
use crate::tensor;

impl Checkpoint {
    /// Hash of every tensor, by key, in parallel.
    #[must_use]
    pub fn tensor_hashes(&self) -> BTreeMap<&str, Hash> {
        let keys: Vec<&str> = self.keys().collect();
        keys.into_par_iter()
            .filter_map(|key| self.get(key).map(|t| (key, tensor::content_hash(&t))))
            .collect()
    }

    /// Hash of the whole: sorted keys with the hashes of their tensors. The layout in shards,
    /// the order in the files and the metadata make no difference.
    #[must_use]
    pub fn content_hash(&self) -> Hash {
        tensor::set_hash(&self.tensor_hashes())
    }
}
