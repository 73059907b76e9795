//! The one-pass statistics beside a plain parallel sum over the same bytes.
//!
//! `cargo bench --bench statistics`. Prints, for each pairing of dtypes, both rates and their
//! ratio from alternating runs, then divan's own table. `PARITY_BENCH_MIB` sets the size of
//! the reference (256 by default; 1024 is what the figures in the documents are for),
//! `RAYON_NUM_THREADS` the number of threads.

#![expect(clippy::print_stdout, reason = "a benchmark prints")]

use std::sync::OnceLock;
use std::time::Instant;

use divan::Bencher;
use divan::counter::BytesCount;
use rayon::prelude::*;
use tensor_parity::compare::{Comparison, Pair, TensorView};
use tensor_parity::numerics::DType;
use tensor_parity::tensor::HostTensor;

const PAIRINGS: [(DType, DType); 6] = [
    (DType::F32, DType::F32),
    (DType::F32, DType::F64),
    (DType::F64, DType::F64),
    (DType::BF16, DType::BF16),
    (DType::F16, DType::F16),
    (DType::BF16, DType::F64),
];
/// Elements that are really drawn; the tensors repeat them.
const PERIOD: usize = 1 << 20;

fn main() {
    for pairing in PAIRINGS {
        side_by_side(&Data::new(pairing));
    }
    divan::main();
}

struct Data {
    dtypes: (DType, DType),
    shape: Vec<usize>,
    candidate: Vec<u8>,
    reference: Vec<u8>,
}

impl Data {
    /// Values over two decades, the candidate off by a few roundings; no special values.
    fn new((candidate, reference): (DType, DType)) -> Self {
        let mib: usize = std::env::var("PARITY_BENCH_MIB").ok().and_then(|s| s.parse().ok()).unwrap_or(256);
        let repeats = ((mib << 20) / reference.size()).div_ceil(PERIOD).max(1);
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / 2f64.powi(53) - 0.5
        };
        let r: Vec<f64> = (0..PERIOD).map(|_| next() * 10f64.powf(next())).collect();
        let noise = 4.0 * candidate.unit_roundoff();
        let c: Vec<f64> = r.iter().map(|x| x * (1.0 + noise * next())).collect();
        let bytes = |dtype, values: &[f64]| {
            HostTensor::from_f64(dtype, vec![PERIOD], values)
                .map(|t| t.bytes().repeat(repeats))
                .unwrap_or_default()
        };
        let (dtypes, shape) = ((candidate, reference), vec![repeats * PERIOD]);
        Self { dtypes, shape, candidate: bytes(candidate, &c), reference: bytes(reference, &r) }
    }

    fn bytes(&self) -> usize {
        self.candidate.len() + self.reference.len()
    }

    fn plain_sum(&self) -> f64 {
        plain_sum(self.dtypes.0, &self.candidate) + plain_sum(self.dtypes.1, &self.reference)
    }

    fn compare(&self) -> Comparison {
        let view = |dtype, bytes| TensorView::new(dtype, &self.shape, bytes);
        match (view(self.dtypes.0, &self.candidate), view(self.dtypes.1, &self.reference)) {
            (Ok(candidate), Ok(reference)) => Pair { candidate, reference }.compare(),
            _ => Comparison::Empty,
        }
    }
}

/// As fast as a sum of these bytes gets in plain code: many lanes, all threads.
fn plain_sum(dtype: DType, bytes: &[u8]) -> f64 {
    fn lanes<const W: usize>(bytes: &[u8], value: impl Fn([u8; W]) -> f32 + Sync) -> f64 {
        let sum = |chunk: &[u8]| {
            let mut lanes = [0f32; 64];
            for words in chunk.as_chunks::<W>().0.as_chunks::<64>().0 {
                for (lane, word) in lanes.iter_mut().zip(words) {
                    *lane += value(*word);
                }
            }
            lanes.iter().map(|x| f64::from(*x)).sum::<f64>()
        };
        bytes.par_chunks(1 << 20).map(sum).sum()
    }
    match dtype {
        DType::F64 => {
            let sum = |chunk: &[u8]| {
                let mut lanes = [0f64; 32];
                for words in chunk.as_chunks::<8>().0.as_chunks::<32>().0 {
                    for (lane, word) in lanes.iter_mut().zip(words) {
                        *lane += f64::from_le_bytes(*word);
                    }
                }
                lanes.iter().sum::<f64>()
            };
            bytes.par_chunks(1 << 20).map(sum).sum()
        }
        DType::F32 => lanes(bytes, f32::from_le_bytes),
        // For f16, too: the bytes are what counts, and this is the cheaper conversion.
        _ => lanes(bytes, |word: [u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(word)) << 16)),
    }
}

/// Alternates the two and compares the fastest run of each.
fn side_by_side(data: &Data) {
    let (mut sum_s, mut pass_s) = (f64::INFINITY, f64::INFINITY);
    let shorter = |a: f64, b: f64| if b < a { b } else { a };
    for _ in 0..7 {
        let start = Instant::now();
        divan::black_box(data.plain_sum());
        sum_s = shorter(sum_s, start.elapsed().as_secs_f64());
        let start = Instant::now();
        divan::black_box(data.compare());
        pass_s = shorter(pass_s, start.elapsed().as_secs_f64());
    }
    let rate = |seconds: f64| data.bytes() as f64 / seconds / 1e9;
    println!(
        "{:>4} against {:<4} {:5} MiB: plain sum {:6.2} GB/s, statistics {:6.2} GB/s, ratio {:.2}",
        data.dtypes.0,
        data.dtypes.1,
        data.bytes() >> 20,
        rate(sum_s),
        rate(pass_s),
        sum_s / pass_s,
    );
}

/// f32 against f64: the main case.
fn main_case() -> &'static Data {
    static DATA: OnceLock<Data> = OnceLock::new();
    DATA.get_or_init(|| Data::new((DType::F32, DType::F64)))
}

#[divan::bench(sample_count = 10)]
fn plain_parallel_sum(bencher: Bencher<'_, '_>) {
    let data = main_case();
    bencher.counter(BytesCount::new(data.bytes())).bench(|| data.plain_sum());
}

#[divan::bench(sample_count = 10)]
fn statistics(bencher: Bencher<'_, '_>) {
    let data = main_case();
    bencher.counter(BytesCount::new(data.bytes())).bench(|| data.compare());
}
