//! Content hashes of tensors (blake3, 256 bits).
//!
//! A tensor's hash covers its dtype, shape and bytes, each length-prefixed, so that no two
//! different tensors share an encoding. The hash of a set covers names and tensor hashes in
//! the order of the names: where the tensors lie, and in which order, makes no difference.

use std::collections::BTreeMap;

use blake3::{Hash, Hasher};

use super::HostTensor;

/// From this size on one tensor is hashed by several threads (the documentation of blake3
/// puts the break-even at 128 KiB).
const PARALLEL_BYTES: usize = 1 << 18;

/// Hash of one tensor: dtype name, rank, dimensions (u64, little-endian), bytes.
#[must_use]
pub fn content_hash(tensor: &HostTensor) -> Hash {
    let mut hasher = Hasher::new();
    hasher.update(b"tensor 1\0");
    hasher.update(tensor.dtype().name().as_bytes());
    hasher.update(b"\0");
    hasher.update(&(tensor.shape().len() as u64).to_le_bytes());
    for dim in tensor.shape() {
        hasher.update(&(*dim as u64).to_le_bytes());
    }
    if tensor.bytes().len() < PARALLEL_BYTES {
        hasher.update(tensor.bytes());
    } else {
        hasher.update_rayon(tensor.bytes());
    }
    hasher.finalize()
}

/// Hash of a named set: for every name in order its length, the name, and the tensor's hash.
#[must_use]
pub fn set_hash<S: AsRef<str> + Ord>(tensors: &BTreeMap<S, Hash>) -> Hash {
    let mut hasher = Hasher::new();
    hasher.update(b"set 1\0");
    for (name, hash) in tensors {
        let name = name.as_ref().as_bytes();
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name);
        hasher.update(hash.as_bytes());
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numerics::DType;

    fn tensor(dtype: DType, shape: &[usize], values: &[f64]) -> HostTensor {
        HostTensor::from_f64(dtype, shape.to_vec(), values).unwrap()
    }

    #[test]
    fn dtype_shape_and_every_byte_count() {
        let base = content_hash(&tensor(DType::F32, &[2, 3], &[0.0; 6]));
        assert_eq!(base, content_hash(&tensor(DType::F32, &[2, 3], &[0.0; 6])));
        assert_ne!(base, content_hash(&tensor(DType::F32, &[3, 2], &[0.0; 6])));
        assert_ne!(base, content_hash(&tensor(DType::F32, &[6], &[0.0; 6])));
        assert_ne!(base, content_hash(&tensor(DType::F32, &[2, 3], &[0.0, 0.0, 0.0, 0.0, 0.0, -0.0])));
        // The same bytes in the same shape under another dtype.
        let (half, brain) = (tensor(DType::F16, &[2], &[0.0; 2]), tensor(DType::BF16, &[2], &[0.0; 2]));
        assert_eq!(half.bytes(), brain.bytes());
        assert_ne!(content_hash(&half), content_hash(&brain));
    }

    #[test]
    fn a_set_knows_which_name_has_which_tensor() {
        let a = content_hash(&tensor(DType::F32, &[1], &[1.0]));
        let b = content_hash(&tensor(DType::F32, &[1], &[2.0]));
        let set = |pairs: [(&str, Hash); 2]| set_hash(&BTreeMap::from(pairs.map(|(n, h)| (n.to_owned(), h))));
        assert_eq!(set([("x", a), ("y", b)]), set([("y", b), ("x", a)]));
        assert_ne!(set([("x", a), ("y", b)]), set([("x", b), ("y", a)]));
    }

    #[test]
    fn large_tensors_hash_as_small_ones_do() {
        let n = PARALLEL_BYTES;
        let t = tensor(DType::U8, &[n], &vec![7.0; n]);
        let mut hasher = Hasher::new();
        hasher.update(b"tensor 1\0u8\0");
        hasher.update(&1u64.to_le_bytes());
        hasher.update(&(n as u64).to_le_bytes());
        hasher.update(t.bytes());
        assert_eq!(content_hash(&t), hasher.finalize());
    }
}
