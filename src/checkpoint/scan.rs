//! A look at the values: weights that are not finite.

use half::{bf16, f16};
use rayon::prelude::*;

use super::{Checkpoint, Warning};
use crate::numerics::DType;
use crate::tensor::HostTensor;

impl Checkpoint {
    /// One warning for every floating-point tensor with NaN or infinite elements, by key.
    /// Reads all weights once, in parallel; nothing is kept.
    #[must_use]
    pub fn non_finite(&self) -> Vec<Warning> {
        let keys: Vec<&str> = self.keys().collect();
        keys.into_par_iter().filter_map(|key| scan(key, &self.get(key)?)).collect()
    }
}

fn scan(key: &str, tensor: &HostTensor) -> Option<Warning> {
    let bytes = tensor.bytes();
    let (nan, infinite, first) = match tensor.dtype() {
        DType::F64 => count(bytes, |w| classify(f64::from_le_bytes(w))),
        DType::F32 => count(bytes, |w| classify(f64::from(f32::from_le_bytes(w)))),
        DType::F16 => count(bytes, |w| classify(f64::from(f16::from_le_bytes(w)))),
        DType::BF16 => count(bytes, |w| classify(f64::from(bf16::from_le_bytes(w)))),
        DType::I64 | DType::U8 => return None,
    };
    first.map(|first| Warning::NonFinite { key: key.to_owned(), nan, infinite, first })
}

/// 1 in the first place for NaN, in the second for an infinity.
fn classify(x: f64) -> (usize, usize) {
    (usize::from(x.is_nan()), usize::from(x.is_infinite()))
}

/// NaN, infinities, and the index of the first of either.
fn count<const N: usize>(
    bytes: &[u8],
    classify: impl Fn([u8; N]) -> (usize, usize) + Sync,
) -> (usize, usize, Option<usize>) {
    const BLOCK: usize = 1 << 16;
    let words = bytes.as_chunks::<N>().0;
    words
        .par_chunks(BLOCK)
        .enumerate()
        .map(|(block, words)| {
            let (mut nan, mut infinite, mut first) = (0, 0, None);
            for (i, word) in words.iter().enumerate() {
                let (n, inf) = classify(*word);
                if n + inf > 0 {
                    first.get_or_insert(block * BLOCK + i);
                }
                nan += n;
                infinite += inf;
            }
            (nan, infinite, first)
        })
        .reduce(
            || (0, 0, None),
            |a, b| (a.0 + b.0, a.1 + b.1, a.2.or(b.2)), // blocks are reduced in order
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_non_finite_element_is_named_in_every_float_dtype() {
        let mut values = vec![1.0; 70_000];
        values[66_000] = f64::NAN;
        values[69_000] = f64::NEG_INFINITY;
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            let t = HostTensor::from_f64(dtype, vec![70_000], &values).unwrap();
            let expected = Warning::NonFinite { key: "w".to_owned(), nan: 1, infinite: 1, first: 66_000 };
            assert_eq!(scan("w", &t), Some(expected), "{dtype}");
        }
        let clean = HostTensor::from_f64(DType::F32, vec![3], &[0.0, 1e38, -1e-45]).unwrap();
        assert_eq!(scan("w", &clean), None);
    }
}
