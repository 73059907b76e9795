//! Forward passes over all labelled samples: loss, top-1, top-5, and the logits of each
//! sample.

use std::collections::BTreeMap;

use super::record::Job;
use super::{Prepared, RunError, Samples, Stage};
use crate::batch::Batch;
use crate::engine::Engine;
use crate::engine::interpreter::{PassOptions, PassOutput, run_pass};
use crate::numerics::DType;
use crate::precision;
use crate::program::Program;
use crate::recording::{Evaluation, QuantityKind};
use crate::tensor::{Bytes, HostTensor};

/// Label of positions that do not count, as in `ATen`.
const IGNORED: i64 = -100;

/// Metrics and what they were computed from.
#[derive(Clone, Debug)]
pub(super) struct Evaluated {
    pub summary: Evaluation,
    /// Logits of all samples, in the dtype that the target delivered.
    pub logits: HostTensor,
    /// Labels of all samples.
    pub labels: HostTensor,
}

impl Evaluated {
    /// As tensors of a recording: metrics as f64 scalars (top-k as a share of the labelled
    /// positions), logits and labels.
    pub(super) fn tensors(self) -> impl Iterator<Item = (String, HostTensor)> {
        let labelled = self.summary.labelled.max(1) as f64;
        let metrics = [
            ("loss", self.summary.loss),
            ("top1", self.summary.top1 as f64 / labelled),
            ("top5", self.summary.top5 as f64 / labelled),
        ];
        metrics
            .into_iter()
            .filter_map(|(name, value)| {
                let tensor = HostTensor::from_f64(DType::F64, Vec::new(), &[value]).ok()?;
                Some((QuantityKind::Metric.quantity(name), tensor))
            })
            .chain([
                (Evaluation::LOGITS.to_owned(), self.logits),
                (Evaluation::LABELS.to_owned(), self.labels),
            ])
    }
}

/// Runs all samples through `engine`.
pub(super) fn evaluate<E: Engine>(job: &Job<'_>, engine: &E) -> Result<Evaluated, RunError> {
    let (prepared, precision) = (job.prepared, job.plan.target.precision);
    let mut tally = Tally::default();
    if let Some(samples) = &prepared.samples {
        let programs = samples
            .programs
            .iter()
            .map(|program| precision::rewrite(program, precision))
            .collect::<Result<Vec<_>, _>>()?;
        for piece in pieces(samples, &programs) {
            (job.progress)(Stage::Evaluate, piece.first as f64 / samples.count.max(1) as f64);
            let batch = piece.batch(prepared, samples)?;
            let feed = prepared.feed(piece.program, &batch);
            let output = run_pass(engine, piece.program, &feed, PassOptions::default())
                .map_err(|source| job.pass_error(source))?;
            tally.add(output, batch.get(&samples.labels));
        }
    }
    Ok(tally.finish())
}

/// A run of samples that one pass takes.
pub(super) struct Piece<'a> {
    /// First sample.
    pub first: usize,
    /// The program of its size.
    pub program: &'a Program,
}

impl Piece<'_> {
    /// Its inputs and labels, as they lie in the file.
    pub(super) fn batch(&self, prepared: &Prepared, samples: &Samples) -> Result<Batch, RunError> {
        Ok(Batch::from_file(self.program, &samples.path, prepared.spec.seed, self.first)?)
    }
}

/// All samples in pieces; `programs` are those of [`Samples::programs`] in some precision.
pub(super) fn pieces<'a>(samples: &'a Samples, programs: &'a [Program]) -> impl Iterator<Item = Piece<'a>> {
    let size = samples.size().max(1);
    (0..samples.count).step_by(size).filter_map(move |first| {
        let full = samples.count - first >= size;
        let program = if full { programs.first() } else { programs.last() }?;
        Some(Piece { first, program })
    })
}

/// Metrics while they are counted.
#[derive(Debug, Default)]
pub(super) struct Tally {
    logits: Vec<HostTensor>,
    labels: Vec<i64>,
    label_shape: Vec<usize>,
    labelled: usize,
    loss: f64,
    top1: usize,
    top5: usize,
}

impl Tally {
    /// Counts one pass. Losses are means over labelled positions, so each counts by how many
    /// it has.
    pub(super) fn add(&mut self, output: PassOutput, labels: Option<&HostTensor>) {
        let (Some(logits), Some(labels)) = (output.logits, labels) else { return };
        let values = logits.to_f64();
        let classes = logits.shape().last().copied().unwrap_or(1).max(1);
        let wanted = labels.to_i64();
        let mut labelled = 0;
        for (row, label) in values.chunks_exact(classes).zip(&wanted) {
            let Ok(label) = usize::try_from(*label) else {
                debug_assert_eq!(*label, IGNORED);
                continue;
            };
            labelled += 1;
            let rank = rank(row, label);
            self.top1 += usize::from(rank < 1);
            self.top5 += usize::from(rank < 5);
        }
        let loss = output.loss.and_then(|t| t.to_f64().first().copied()).unwrap_or(f64::NAN);
        if labelled > 0 {
            self.loss += loss * labelled as f64;
        }
        self.labelled += labelled;
        self.labels.extend(wanted);
        self.label_shape = labels.shape().to_vec();
        self.logits.push(logits);
    }

    pub(super) fn finish(self) -> Evaluated {
        let samples: usize = self.logits.iter().map(|t| t.shape().first().copied().unwrap_or(0)).sum();
        let mut label_shape = self.label_shape;
        if let Some(rows) = label_shape.first_mut() {
            *rows = samples;
        }
        let empty = || HostTensor::from_f64(DType::F64, vec![0], &[]);
        let labels = HostTensor::from_i64(label_shape, &self.labels);
        Evaluated {
            summary: Evaluation {
                samples,
                labelled: self.labelled,
                loss: self.loss / self.labelled as f64,
                top1: self.top1,
                top5: self.top5,
            },
            logits: concatenate(&self.logits)
                .or_else(|| empty().ok())
                .unwrap_or_else(|| unreachable!("an empty tensor can be made")),
            labels: labels
                .or_else(|_| empty())
                .unwrap_or_else(|_| unreachable!("an empty tensor can be made")),
        }
    }
}

/// Number of classes that come before `label`: larger logits, and equal ones of a lower
/// class. A NaN logit comes before everything: what is not a number is no hit. A label that
/// is no class comes last.
fn rank(row: &[f64], label: usize) -> usize {
    let Some(own) = row.get(label) else { return row.len() };
    if own.is_nan() {
        return row.len();
    }
    row.iter()
        .enumerate()
        .filter(|(class, value)| value.is_nan() || *value > own || (*value == own && *class < label))
        .count()
}

/// Tensors of one dtype, one after the other along the first dimension.
fn concatenate(parts: &[HostTensor]) -> Option<HostTensor> {
    let first = parts.first()?;
    let mut shape = first.shape().to_vec();
    *shape.first_mut()? = parts.iter().map(|t| t.shape().first().copied().unwrap_or(0)).sum();
    let bytes: Vec<u8> = parts.iter().flat_map(|t| t.bytes().iter().copied()).collect();
    HostTensor::new(first.dtype(), shape, Bytes::Owned(bytes.into())).ok()
}

/// Scalars of metrics by quantity name.
pub(super) fn metric_values(summary: &Evaluation) -> BTreeMap<String, f64> {
    let labelled = summary.labelled.max(1) as f64;
    [
        ("loss", summary.loss),
        ("top1", summary.top1 as f64 / labelled),
        ("top5", summary.top5 as f64 / labelled),
    ]
    .into_iter()
    .map(|(name, value)| (QuantityKind::Metric.quantity(name), value))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(logits: &[f64], classes: usize, loss: f64) -> PassOutput {
        let shape = vec![logits.len() / classes, classes];
        PassOutput {
            loss: Some(HostTensor::from_f64(DType::F32, Vec::new(), &[loss]).unwrap()),
            logits: Some(HostTensor::from_f64(DType::F32, shape, logits).unwrap()),
            ..PassOutput::default()
        }
    }

    #[test]
    fn hits_are_counted_and_the_loss_weighs_every_sample_once() {
        let mut tally = Tally::default();
        let labels = |values: &[i64]| HostTensor::from_i64(vec![values.len()], values).unwrap();
        tally.add(pass(&[3.0, 1.0, 2.0, 0.0, 5.0, 9.0], 3, 1.0), Some(&labels(&[0, 1])));
        tally.add(pass(&[3.0, 1.0, 2.0], 3, 4.0), Some(&labels(&[0])));
        let got = tally.finish();
        assert_eq!((got.summary.samples, got.summary.labelled), (3, 3));
        assert_eq!((got.summary.top1, got.summary.top5), (2, 3));
        assert_eq!(got.summary.loss, 2.0);
        assert_eq!(got.logits.shape(), [3, 3]);
        assert_eq!(got.labels.to_i64(), [0, 1, 0]);
        assert_eq!(metric_values(&got.summary)["metric/top1"], 2.0 / 3.0);
    }

    #[test]
    fn a_position_without_a_label_counts_nowhere() {
        let mut tally = Tally::default();
        let labels = HostTensor::from_i64(vec![2], &[IGNORED, 1]).unwrap();
        tally.add(pass(&[3.0, 1.0, 0.0, 5.0], 2, 0.5), Some(&labels));
        let got = tally.finish().summary;
        assert_eq!((got.samples, got.labelled, got.top1, got.loss), (2, 1, 1, 0.5));
    }

    #[test]
    fn nan_is_never_a_hit_and_ties_go_to_the_lower_class() {
        assert_eq!(rank(&[f64::NAN, 1.0], 1), 1);
        assert_eq!(rank(&[f64::NAN, 1.0], 0), 2);
        assert_eq!(rank(&[f64::NAN; 10], 3), 10);
        assert_eq!(rank(&[1.0, 1.0], 0), 0);
        assert_eq!(rank(&[1.0, 1.0], 1), 1);
        assert_eq!(rank(&[1.0], 7), 1);
    }

    #[test]
    fn no_sample_gives_no_metric() {
        let got = Tally::default().finish();
        assert!(got.summary.loss.is_nan() && got.summary.samples == 0);
    }
}
