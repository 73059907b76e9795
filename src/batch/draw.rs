//! [`Stream`]: the random values of one named tensor.

use super::philox::philox4x32_10;

/// Random values by index, for one seed and one name.
///
/// The key of the generator is the seed (low half first); the counter is the index (low half
/// first) and the first eight bytes of the blake3 hash of the name, as two little-endian
/// words. Every value takes one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    key: [u32; 2],
    name: [u32; 2],
}

impl Stream {
    /// The stream of `name` under `seed`.
    #[must_use]
    pub fn new(seed: u64, name: &str) -> Self {
        let hash = blake3::hash(name.as_bytes());
        let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
        Self { key: halves(seed), name: [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])] }
    }

    fn block(&self, index: u64) -> [u32; 4] {
        let ([low, high], [n0, n1]) = (halves(index), self.name);
        philox4x32_10([low, high, n0, n1], self.key)
    }

    /// An approximately normal value (mean 0, variance 1.003, kurtosis 2.85), at most 8
    /// significant bits, magnitude 0 or 2⁻¹⁴ to 4.9: exact in f64, f32, tf32, f16 (where it is
    /// normal) and bf16.
    ///
    /// Irwin–Hall: the sum of the block's eight 16-bit lanes, centred, times 157/2²⁴, which
    /// brings the standard deviation √(8/12)·2¹⁷ of twice the centred sum to 1.0015. Rounded
    /// to 8 bits, ties to even, in integers; the one division is by a power of two.
    #[must_use]
    pub fn normal(&self, index: u64) -> f64 {
        let sum: i64 =
            self.block(index).iter().map(|word| i64::from(word & 0xffff) + i64::from(word >> 16)).sum();
        let scaled = (2 * sum - 8 * 65_535) * 157;
        let magnitude = round_to_8_bits(scaled.unsigned_abs());
        if magnitude < SMALLEST {
            return 0.0;
        }
        // At most 27 bits: exact as f64, and so is the division.
        let value = magnitude as f64 / ONE;
        if scaled < 0 { -value } else { value }
    }

    /// A uniform integer in `0..n`, 0 for `n == 0`.
    ///
    /// Without modulo bias: the upper half of (64 random bits)·n, rejected where the lower half
    /// falls into the part that would favour some results (Lemire, ACM TOMACS 29(1), 2019).
    /// A block holds two tries; should both be rejected (probability below (n/2⁶⁴)²), the
    /// block itself becomes the counter of the next.
    #[must_use]
    pub fn below(&self, index: u64, n: u64) -> u64 {
        if n == 0 {
            return 0;
        }
        let favoured = n.wrapping_neg() % n;
        let mut block = self.block(index);
        loop {
            let [a, b, c, d] = block;
            for word in [join(a, b), join(c, d)] {
                let product = u128::from(word) * u128::from(n);
                #[expect(clippy::cast_possible_truncation, reason = "the halves are what is wanted")]
                let (high, low) = ((product >> 64) as u64, product as u64);
                if low >= favoured {
                    return high;
                }
            }
            block = philox4x32_10(block, self.key);
        }
    }

    /// Whether an element is kept when each is dropped with probability `p`: the first word of
    /// its block is at least ⌊p·2³²⌋ (exact, by scaling with a power of two), so that the
    /// probability is met to 2⁻³².
    #[must_use]
    pub fn keep(&self, index: u64, p: f64) -> bool {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates: 0 for NaN and negative p, everything is dropped from p = 1 on"
        )]
        let threshold = (p * 4_294_967_296.0) as u64;
        let [word, ..] = self.block(index);
        u64::from(word) >= threshold
    }

    /// A permutation of `0..n`, each equally likely (Fisher and Yates, from the end).
    #[must_use]
    pub fn permutation(&self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for last in (1..n).rev() {
            let other = self.below(last as u64, last as u64 + 1);
            order.swap(last, usize::try_from(other).unwrap_or(0));
        }
        order
    }
}

/// 1.0 in the integer scale of `normal`.
const ONE: f64 = 16_777_216.0;
/// 2⁻¹⁴, the smallest normal f16, in that scale.
const SMALLEST: u64 = 1 << 10;

/// To 8 significant bits, ties to even.
const fn round_to_8_bits(x: u64) -> u64 {
    let bits = u64::BITS - x.leading_zeros();
    if bits <= 8 {
        return x;
    }
    let shift = bits - 8;
    let (kept, rest, half) = (x >> shift, x & ((1 << shift) - 1), 1 << (shift - 1));
    let up = rest > half || rest == half && kept % 2 == 1;
    (kept + up as u64) << shift
}

#[expect(clippy::cast_possible_truncation, reason = "the halves are what is wanted")]
const fn halves(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

const fn join(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numerics::DType;
    use crate::tensor::HostTensor;

    #[test]
    fn the_bytes_of_a_stream_never_change() {
        let s = Stream::new(42, "pixel_values");
        let bytes: Vec<u8> = (0..4096)
            .flat_map(|i| HostTensor::from_f64(DType::F32, vec![], &[s.normal(i)]).unwrap().bytes().to_vec())
            .collect();
        let integers: Vec<u8> = (0..4096).flat_map(|i| s.below(i, 1000).to_le_bytes()).collect();
        let masks: Vec<u8> = (0..4096).map(|i| u8::from(s.keep(i, 0.1))).collect();
        let order: Vec<u8> = s.permutation(1000).iter().flat_map(|i| (*i as u64).to_le_bytes()).collect();
        let hash = |bytes: &[u8]| blake3::hash(bytes).to_hex()[..16].to_owned();
        // Computed a second time by an independent program from the description above.
        let first: Vec<f64> = (0..4).map(|i| s.normal(i)).collect();
        assert_eq!(first, [-0.226_562_5, 0.605_468_75, -2.921_875, 1.164_062_5]);
        let hashes = [hash(&bytes), hash(&integers), hash(&masks), hash(&order)];
        assert_eq!(hashes, ["44310d914b56921b", "4183372ccf09974d", "47504c43b25709a1", "784983ba5fd2c1dc"]);
    }

    #[test]
    fn normals_are_exact_in_every_float_dtype() {
        let s = Stream::new(7, "x");
        let values: Vec<f64> = (0..20_000).map(|i| s.normal(i)).collect();
        let exact = HostTensor::from_f64(DType::F64, vec![values.len()], &values).unwrap();
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            assert_eq!(exact.cast(dtype).to_f64(), values, "{dtype}");
        }
        assert!(values.iter().all(|v| *v == 0.0 || v.abs() >= DType::F16.unit_roundoff() / 8.0));
    }

    #[test]
    fn normals_have_the_stated_moments() {
        let s = Stream::new(1, "moments");
        let n = 200_000;
        let values: Vec<f64> = (0..n).map(|i| s.normal(i)).collect();
        let mean = |f: &dyn Fn(f64) -> f64| values.iter().map(|v| f(*v)).sum::<f64>() / n as f64;
        let (first, second, fourth) = (mean(&|v| v), mean(&|v| v * v), mean(&|v| v.powi(4)));
        assert!(first.abs() < 0.01, "mean {first}");
        assert!((second - 1.003).abs() < 0.01, "variance {second}");
        assert!((fourth / second.powi(2) - 2.85).abs() < 0.05, "kurtosis {}", fourth / second.powi(2));
    }

    #[test]
    fn rounding_keeps_8_bits_and_ties_to_even() {
        assert_eq!(round_to_8_bits(255), 255);
        assert_eq!(round_to_8_bits(0b1_0000_0001), 0b1_0000_0000, "a tie goes down to even");
        assert_eq!(round_to_8_bits(0b1_0000_0011), 0b1_0000_0100, "a tie goes up to even");
        assert_eq!(round_to_8_bits(0b1_1111_1111), 0b10_0000_0000, "a carry grows the number");
        assert_eq!(round_to_8_bits(0), 0);
    }

    #[test]
    fn integers_are_below_n_and_evenly_spread() {
        let s = Stream::new(3, "labels");
        let mut counts = [0u32; 7];
        for i in 0..70_000 {
            counts[usize::try_from(s.below(i, 7)).unwrap()] += 1;
        }
        // Expected 10 000 each, standard deviation 93.
        assert!(counts.iter().all(|c| c.abs_diff(10_000) < 500), "{counts:?}");
        assert_eq!((s.below(5, 1), s.below(5, 0)), (0, 0));
        // For n = 2⁶³ + 1 almost half of all tries are rejected: the loop has to end.
        let n = (1 << 63) + 1;
        assert!((0..1000).all(|i| s.below(i, n) < n));
    }

    #[test]
    fn masks_drop_the_asked_for_share() {
        let s = Stream::new(9, "mask");
        let kept = (0..100_000).filter(|i| s.keep(*i, 0.1)).count();
        assert!(kept.abs_diff(90_000) < 500, "{kept}"); // standard deviation 95
        assert!((0..1000).all(|i| s.keep(i, 0.0) && !s.keep(i, 1.0)));
    }

    #[test]
    fn a_permutation_holds_every_index_once() {
        let order = Stream::new(5, "shuffle").permutation(257);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..257));
        assert_ne!(order, Stream::new(6, "shuffle").permutation(257));
        assert!(Stream::new(5, "shuffle").permutation(0).is_empty());
    }

    #[test]
    fn seed_name_and_index_all_matter() {
        let draw = |seed, name, index| Stream::new(seed, name).below(index, u64::MAX);
        let base = draw(1, "a", 0);
        assert_ne!(base, draw(2, "a", 0));
        assert_ne!(base, draw(1 + (1 << 32), "a", 0));
        assert_ne!(base, draw(1, "b", 0));
        assert_ne!(base, draw(1, "a", 1));
        assert_ne!(base, draw(1, "a", 1 << 32));
    }
}
