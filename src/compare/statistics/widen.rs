//! Bytes of any float dtype to f64, with the extremes of the magnitudes on the way.

#![expect(clippy::inline_always, reason = "bodies are compiled once for each instruction set")]

use half::{bf16, f16};

use crate::numerics::DType;

/// Elements of a block: small enough that the next block arrives from memory while this one
/// is worked on (1024 elements were a third slower).
pub(super) const BLOCK: usize = 256;

/// Scratch for one side of a block.
pub(super) type Scratch = [f64; BLOCK];

/// Extremes of |x| over a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Magnitudes {
    /// Whether the block holds a NaN or an infinity; `max` is then meaningless.
    pub special: bool,
    /// Largest magnitude.
    pub max: f64,
    /// Smallest magnitude.
    pub min: f64,
}

/// Widens up to [`BLOCK`] elements into the front of `out`; returns how many and what
/// magnitudes they have. Integers are not handled here.
#[inline(always)]
pub(super) fn widen(dtype: DType, bytes: &[u8], out: &mut Scratch) -> Magnitudes {
    match dtype {
        DType::F64 => {
            let (max, min) = each(
                bytes,
                out,
                |word: [u8; 8]| i64::from_le_bytes(word) & i64::MAX,
                f64::from_le_bytes,
                (0, i64::MAX),
            );
            let decode = |m: i64| f64::from_bits(m.cast_unsigned());
            Magnitudes { special: max >= 0x7ff << 52, max: decode(max), min: decode(min) }
        }
        DType::F32 => {
            let (max, min) = each(
                bytes,
                out,
                |word: [u8; 4]| i32::from_le_bytes(word) & i32::MAX,
                |word| f64::from(f32::from_le_bytes(word)),
                (0, i32::MAX),
            );
            let decode = |m: i32| f64::from(f32::from_bits(m.cast_unsigned()));
            Magnitudes { special: max >= 0xff << 23, max: decode(max), min: decode(min) }
        }
        DType::BF16 => {
            let (max, min) = each(bytes, out, magnitude_16, widen_bf16, (0, i16::MAX));
            let decode = |m: i16| widen_bf16(m.to_le_bytes());
            Magnitudes { special: max >= 0xff << 7, max: decode(max), min: decode(min) }
        }
        DType::F16 => {
            let (max, min) = each(bytes, out, magnitude_16, widen_f16, (0, i16::MAX));
            let decode = |m: i16| widen_f16(m.to_le_bytes());
            Magnitudes { special: max >= 0x1f << 10, max: decode(max), min: decode(min) }
        }
        DType::I64 | DType::U8 => Magnitudes { special: false, max: 0.0, min: 0.0 },
    }
}

/// The value of element `index`, of any dtype and class, exactly (integers: see
/// [`super::integers`]); 0 beyond the end.
pub(super) fn decode(dtype: DType, bytes: &[u8], index: usize) -> f64 {
    fn word<const N: usize>(bytes: &[u8], index: usize) -> [u8; N] {
        bytes.as_chunks::<N>().0.get(index).copied().unwrap_or([0; N])
    }
    match dtype {
        DType::F64 => f64::from_le_bytes(word(bytes, index)),
        DType::F32 => f64::from(f32::from_le_bytes(word(bytes, index))),
        DType::F16 => f64::from(f16::from_le_bytes(word(bytes, index))),
        DType::BF16 => f64::from(bf16::from_le_bytes(word(bytes, index))),
        DType::I64 => i64::from_le_bytes(word(bytes, index)) as f64,
        DType::U8 => f64::from(u8::from_le_bytes(word(bytes, index))),
    }
}

#[inline(always)]
fn each<const W: usize, M: Ord + Copy>(
    bytes: &[u8],
    out: &mut Scratch,
    magnitude: impl Fn([u8; W]) -> M,
    value: impl Fn([u8; W]) -> f64,
    (mut max, mut min): (M, M),
) -> (M, M) {
    for (word, out) in bytes.as_chunks::<W>().0.iter().zip(out) {
        let m = magnitude(*word);
        max = if m > max { m } else { max };
        min = if m < min { m } else { min };
        *out = value(*word);
    }
    (max, min)
}

#[inline(always)]
const fn magnitude_16(word: [u8; 2]) -> i16 {
    i16::from_le_bytes(word) & i16::MAX
}

#[inline(always)]
fn widen_bf16(word: [u8; 2]) -> f64 {
    f64::from(f32::from_bits(u32::from(u16::from_le_bytes(word)) << 16))
}

/// Exact for every finite f16; what it gives for infinities and NaN is at least 65536 in
/// magnitude. Written in integer steps that vectorise everywhere; `half` converts one by one.
#[inline(always)]
fn widen_f16(word: [u8; 2]) -> f64 {
    let bits = u32::from(u16::from_le_bytes(word));
    let magnitude = bits & 0x7fff;
    // Exponent bias 15 to 127. A subnormal becomes 2^-14·(1 + m/1024), less 2^-14.
    let normal = f32::from_bits((magnitude << 13) + (112 << 23));
    let subnormal = f32::from_bits((magnitude << 13) + (113 << 23)) - f32::from_bits(113 << 23);
    let value = if magnitude < 0x400 { subnormal } else { normal };
    f64::from(f32::from_bits(value.to_bits() | (bits & 0x8000) << 16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finite_half_is_widened_exactly() {
        for bits in 0..=u16::MAX {
            let word = bits.to_le_bytes();
            let (x, y) = (f64::from(f16::from_le_bytes(word)), widen_f16(word));
            assert!(if x.is_finite() { x.to_bits() == y.to_bits() } else { y.abs() >= 65536.0 }, "{bits:#x}");
            let (x, y) = (f64::from(bf16::from_le_bytes(word)), widen_bf16(word));
            assert!(x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan(), "{bits:#x}");
        }
    }

    #[test]
    fn magnitudes_cover_the_first_and_the_last_element() {
        for n in [1usize, 15, 16, 17, 33, BLOCK] {
            for at in [0, n / 2, n - 1] {
                let mut values = vec![1.0f32; n];
                values[at] = -3.0;
                let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                let mut out = [0.0; BLOCK];
                let m = widen(DType::F32, &bytes, &mut out);
                assert_eq!((m.special, m.max, out[at]), (false, 3.0, -3.0));
                assert_eq!(m.min, if n == 1 { 3.0 } else { 1.0 });
                values[at] = f32::NAN;
                let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                assert!(widen(DType::F32, &bytes, &mut out).special);
            }
        }
    }
}
