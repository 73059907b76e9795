//! Does a device compute? Known kernels with known answers, before any pass.
//!
//! Three answers about a device are kept apart: *built* (the library has code for it),
//! *available* (the library says that it is there), *verified* (it returned the right bits).
//! The last one is found here: a matrix product, a reduction, an elementwise chain and a
//! strided copy on small whole numbers, chosen so that every partial sum in any order is
//! exact even in bf16. The results are therefore known to the bit; they are checked on the
//! host, and a second run must give the same bits.

use serde::{Deserialize, Serialize};

use super::interpreter::{PassOptions, run_pass};
use super::{Engine, Support};
use crate::numerics::DType;
use crate::program::{Builder, InputKind, Op, Program, ValueId};
use crate::tensor::HostTensor;
use crate::trace::Phase;

/// The first two answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// The library has code for the device.
    pub built: bool,
    /// The library says that the device is there.
    pub available: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Presence {
    /// Built and there.
    #[must_use]
    pub const fn available() -> Self {
        Self { built: true, available: true, reason: None }
    }

    /// The library has no code for it.
    #[must_use]
    pub const fn not_built(reason: String) -> Self {
        Self { built: false, available: false, reason: Some(reason) }
    }

    /// The library has code for it, the machine has no such device.
    #[must_use]
    pub const fn not_available(reason: String) -> Self {
        Self { built: true, available: false, reason: Some(reason) }
    }
}

/// What one kernel did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// Every element is right to the bit, twice.
    Exact,
    /// Elements are wrong.
    Wrong {
        /// How many of how many.
        wrong: usize,
        /// Elements of the result.
        elements: usize,
        /// The first of them, row-major.
        index: usize,
        /// What it is.
        #[serde(with = "crate::engine::canary::text")]
        found: f64,
        /// What it should be.
        expected: f64,
    },
    /// The second run gave other bits than the first.
    NotRepeatable {
        /// First element that differs.
        index: usize,
    },
    /// The result is elsewhere, or of another shape or dtype.
    Misplaced {
        /// What was seen.
        seen: String,
    },
    /// The engine reported an error.
    Failed {
        /// Its words.
        message: String,
    },
    /// The engine declares that it does not have the operator in this dtype.
    Skipped {
        /// Its reason.
        reason: String,
    },
}

/// One kernel in one dtype.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelCheck {
    /// `matmul`, `reduction`, `elementwise`, `strided copy`.
    pub kernel: String,
    /// Dtype it was run in.
    pub dtype: DType,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The third answer, with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Canary {
    /// Every kernel that ran was exact, and at least one ran.
    pub verified: bool,
    /// Kernel by kernel.
    pub kernels: Vec<KernelCheck>,
}

impl Canary {
    /// Whether the engine declares that it has none of the kernels in this dtype.
    #[must_use]
    pub fn unasked(&self) -> bool {
        self.kernels.iter().all(|k| matches!(k.outcome, Outcome::Skipped { .. }))
    }

    /// Whether no kernel gave a result: a pass would give none either.
    #[must_use]
    pub fn hopeless(&self) -> bool {
        let mut ran =
            self.kernels.iter().filter(|k| !matches!(k.outcome, Outcome::Skipped { .. })).peekable();
        ran.peek().is_some() && ran.all(|k| matches!(k.outcome, Outcome::Failed { .. }))
    }

    /// The first thing that is wrong, in words.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        if self.verified {
            return None;
        }
        let bad =
            self.kernels.iter().find(|k| !matches!(k.outcome, Outcome::Exact | Outcome::Skipped { .. }));
        Some(bad.map_or_else(
            || "no kernel could be tried".to_owned(),
            |k| format!("{} in {}: {}", k.kernel, k.dtype, k.outcome.describe()),
        ))
    }
}

impl Outcome {
    /// In words.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Exact => "exact".to_owned(),
            Self::Wrong { wrong, elements, index, found, expected } => {
                format!(
                    "{wrong} of {elements} elements are wrong, the first at {index}: {found} in place of {expected}"
                )
            }
            Self::NotRepeatable { index } => format!("two runs differ, first at element {index}"),
            Self::Misplaced { seen } => seen.clone(),
            Self::Failed { message } => message.clone(),
            Self::Skipped { reason } => format!("skipped: {reason}"),
        }
    }
}

/// Runs every kernel in `dtype`, twice.
pub fn verify<E: Engine>(engine: &E, dtype: DType) -> Canary {
    let kernels: Vec<KernelCheck> = kernels(dtype)
        .into_iter()
        .map(|kernel| KernelCheck {
            kernel: kernel.name.to_owned(),
            dtype,
            outcome: check(engine, &kernel).unwrap_or_else(|outcome| outcome),
        })
        .collect();
    let ran = kernels.iter().filter(|k| !matches!(k.outcome, Outcome::Skipped { .. }));
    let verified = ran.clone().count() > 0 && ran.into_iter().all(|k| k.outcome == Outcome::Exact);
    Canary { verified, kernels }
}

struct Kernel {
    name: &'static str,
    program: Program,
    inputs: Vec<HostTensor>,
    expected: HostTensor,
}

fn check<E: Engine>(engine: &E, kernel: &Kernel) -> Result<Outcome, Outcome> {
    for node in &kernel.program.nodes {
        let types: Vec<_> = node.inputs.iter().map(|id| kernel.program.value(*id)).collect();
        if let Support::Unsupported(reason) =
            engine.supports(&node.op, kernel.expected.dtype(), &types, Phase::Forward)
        {
            return Err(Outcome::Skipped { reason });
        }
    }
    let first = run(engine, kernel)?;
    let second = run(engine, kernel)?;
    if let Some(outcome) = compare(&first, &kernel.expected) {
        return Err(outcome);
    }
    Ok(match differing(&first, &second).next() {
        None => Outcome::Exact,
        Some(index) => Outcome::NotRepeatable { index },
    })
}

fn run<E: Engine>(engine: &E, kernel: &Kernel) -> Result<HostTensor, Outcome> {
    let feed = |name: &str| {
        let index: usize = name.strip_prefix('x')?.parse().ok()?;
        kernel.inputs.get(index).cloned()
    };
    let out = run_pass(engine, &kernel.program, &feed, PassOptions::default())
        .map_err(|error| Outcome::Failed { message: error.to_string() })?;
    let device = engine.info().device;
    if let Some(other) = out.devices.iter().find(|found| **found != device) {
        return Err(Outcome::Misplaced { seen: format!("asked for {device}, a tensor is on {other}") });
    }
    out.logits.ok_or_else(|| Outcome::Failed { message: "no result came back".to_owned() })
}

fn compare(found: &HostTensor, expected: &HostTensor) -> Option<Outcome> {
    if found.shape() != expected.shape() || found.dtype() != expected.dtype() {
        let seen = format!(
            "the result is {:?} {}, not {:?} {}",
            found.shape(),
            found.dtype(),
            expected.shape(),
            expected.dtype()
        );
        return Some(Outcome::Misplaced { seen });
    }
    let index = differing(found, expected).next()?;
    let value = |tensor: &HostTensor| tensor.to_f64().get(index).copied().unwrap_or(f64::NAN);
    Some(Outcome::Wrong {
        wrong: differing(found, expected).count(),
        elements: found.elements(),
        index,
        found: value(found),
        expected: value(expected),
    })
}

/// Elements whose bits differ, except for the sign of zero: an exact zero sum may have either.
fn differing<'a>(a: &'a HostTensor, b: &'a HostTensor) -> impl Iterator<Item = usize> + use<'a> {
    let size = a.dtype().size();
    let words = a.bytes().chunks(size).zip(b.bytes().chunks(size)).enumerate();
    let (x, y) = (a.to_f64(), b.to_f64());
    words.filter(|(_, (p, q))| p != q).map(|(index, _)| index).filter(move |index| {
        let is_zero = |values: &[f64]| values.get(*index).is_some_and(|v| *v == 0.0);
        !(is_zero(&x) && is_zero(&y))
    })
}

/// Whole numbers in `-bound..=bound` that repeat with no short period.
fn whole_numbers(count: usize, bound: i64, seed: u64) -> Vec<i64> {
    let mut state = seed;
    let span = 2 * bound.unsigned_abs() + 1;
    (0..count)
        .map(|_| {
            // Knuth's MMIX generator; its high bits are the good ones.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            i64::try_from((state >> 33) % span).unwrap_or(0) - bound
        })
        .collect()
}

fn kernels(dtype: DType) -> Vec<Kernel> {
    // Sizes are odd, so that the last block of any kernel is a partial one. Largest partial
    // sums stay below 256, the limit of whole numbers in bf16.
    let (m, k, n) = (37, 65, 43);
    let (a, b) = (whole_numbers(m * k, 1, 1), whole_numbers(k * n, 1, 2));
    let product = (0..m * n)
        .map(|at| (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum())
        .collect::<Vec<i64>>();
    let (rows, columns) = (61, 203);
    let x = whole_numbers(rows * columns, 1, 3);
    let sums = x.chunks(columns).map(|row| row.iter().sum()).collect::<Vec<i64>>();
    let (wide, row) = (whole_numbers(rows * columns, 40, 4), whole_numbers(columns, 40, 5));
    let chain = wide.iter().enumerate().map(|(i, v)| v * 3 + row[i % columns]).collect::<Vec<i64>>();
    // Rows 5.., transposed, made contiguous: an offset and a stride that are not the usual ones.
    let copied = (0..columns)
        .flat_map(|c| (5..rows).map(move |r| (r, c)))
        .map(|(r, c)| wide[r * columns + c])
        .collect::<Vec<i64>>();
    let made = [
        kernel("matmul", dtype, &[(&[m, k], &a), (&[k, n], &b)], (&[m, n], &product), |b, x| {
            b.apply(Op::Mm {}, x)
        }),
        kernel("reduction", dtype, &[(&[rows, columns], &x)], (&[rows], &sums), |b, x| {
            b.apply(Op::Sum { dims: vec![1], keepdim: false }, x)
        }),
        kernel(
            "elementwise",
            dtype,
            &[(&[rows, columns], &wide), (&[columns], &row)],
            (&[rows, columns], &chain),
            |b, x| {
                let scaled = b.apply(Op::MulScalar { value: 3.0 }, &x[..1]);
                b.apply(Op::Add {}, &[scaled, x[1]])
            },
        ),
        kernel(
            "strided copy",
            dtype,
            &[(&[rows, columns], &wide)],
            (&[(rows - 5) * columns], &copied),
            |b, x| {
                let end = isize::try_from(rows).unwrap_or(isize::MAX);
                let rest = b.apply(Op::Slice { dim: 0, start: 5, end, step: 1 }, x);
                let turned = b.apply(Op::Permute { dims: vec![1, 0] }, &[rest]);
                b.apply(Op::Reshape { shape: vec![-1] }, &[turned])
            },
        ),
    ];
    made.into_iter().flatten().collect()
}

type Numbers<'a> = (&'a [usize], &'a [i64]);

fn kernel(
    name: &'static str,
    dtype: DType,
    inputs: &[Numbers<'_>],
    expected: Numbers<'_>,
    body: impl FnOnce(&mut Builder, &[ValueId]) -> ValueId,
) -> Option<Kernel> {
    let tensor = |(shape, values): Numbers<'_>| {
        let values: Vec<f64> = values.iter().map(|v| *v as f64).collect();
        HostTensor::from_f64(dtype, shape.to_vec(), &values).ok()
    };
    let mut builder = Builder::new("canary");
    let ids: Vec<ValueId> = inputs
        .iter()
        .enumerate()
        .map(|(i, (shape, _))| builder.input(&format!("x{i}"), InputKind::Batch, shape, dtype, |_| {}))
        .collect();
    let result = body(&mut builder, &ids);
    builder.set_logits(result);
    Some(Kernel {
        name,
        program: builder.finish().ok()?,
        inputs: inputs.iter().map(|numbers| tensor(*numbers)).collect::<Option<_>>()?,
        expected: tensor(expected)?,
    })
}

/// JSON has no NaN: numbers as text.
mod text {
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "signature that serde asks for")]
    pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&value.to_string())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_is_made_in_every_float_dtype_and_its_numbers_are_whole_there() {
        for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_float()) {
            let kernels = kernels(dtype);
            assert_eq!(kernels.len(), 4);
            let limit = 2f64.powi(i32::try_from(dtype.precision_bits()).unwrap());
            for kernel in kernels {
                let values = kernel.expected.to_f64();
                assert!(
                    values.iter().all(|v| v.fract() == 0.0 && v.abs() <= limit),
                    "{} {dtype}",
                    kernel.name
                );
                assert!(values.iter().filter(|v| **v != 0.0).count() > values.len() / 2, "{}", kernel.name);
            }
        }
    }

    #[test]
    fn a_sign_of_zero_is_no_difference_and_one_bit_is() {
        let tensor = |values: &[f64]| HostTensor::from_f64(DType::F32, vec![values.len()], values).unwrap();
        assert!(compare(&tensor(&[0.0, 1.0]), &tensor(&[-0.0, 1.0])).is_none());
        let off = f64::from(f32::from_bits(1f32.to_bits() + 1));
        let outcome = compare(&tensor(&[0.0, off]), &tensor(&[0.0, 1.0]));
        assert!(
            matches!(outcome, Some(Outcome::Wrong { wrong: 1, elements: 2, index: 1, .. })),
            "{outcome:?}"
        );
    }

    #[test]
    fn nan_in_a_result_is_written_and_read() {
        let outcome = Outcome::Wrong { wrong: 1, elements: 1, index: 0, found: f64::NAN, expected: 1.0 };
        let check = KernelCheck { kernel: "matmul".to_owned(), dtype: DType::F32, outcome };
        let read: KernelCheck = serde_json::from_str(&serde_json::to_string(&check).unwrap()).unwrap();
        assert!(matches!(read.outcome, Outcome::Wrong { found, .. } if found.is_nan()));
    }
}
