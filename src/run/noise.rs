//! Noise floors: how far rounding alone moves each quantity of this model on this batch.
//!
//! The f64 reference is run again with the rounding errors that the error model predicts
//! for the target's formats, M times. The root mean square over these replicas of the
//! distance from the exact result is the floor of a quantity; never less than the error of
//! storing it in its dtype. How many independent elements stand behind a distance d shows in
//! its spread: a sum of nu equal independent squares has mean m and variance 2·m²/nu, so
//! nu = 2·mean(d²)²/var(d²), between 1 and the number of elements.

use std::collections::{BTreeMap, HashMap};

use rayon::prelude::*;

use super::evaluate::{Evaluated, Tally, metric_values, pieces};
use super::record::{Delivered, Job};
use super::{NoisePlan, Prepared, RunError, Samples, Stage};
use crate::engine::interpreter::{PassOptions, run_pass};
use crate::engine::reference::{Formats, NoiseSpec, ReferenceEngine};
use crate::numerics::{DType, FloatFormat, Role, max_nan, min_nan};
use crate::precision::{self, Precision};
use crate::program::Program;
use crate::recording::{Evaluation, Floor, Quantity, QuantityKind};
use crate::tensor::HostTensor;

/// Adds the floor of every quantity to `rows`, and of every sample's logits to `exact`,
/// which holds what the exact reference delivered.
pub(super) fn add_floors(
    job: &Job<'_>,
    noise: &NoisePlan,
    rows: &mut [Quantity],
    exact: &mut BTreeMap<String, HostTensor>,
) -> Result<(), RunError> {
    let wanted: Vec<&str> = rows
        .iter()
        .filter(|row| row.kind != QuantityKind::Metric && exact.contains_key(&row.name))
        .map(|row| row.name.as_str())
        .collect();
    // The values of R in f64, shared by all replicas.
    let reference: HashMap<&str, Vec<f64>> =
        wanted.iter().filter_map(|name| Some((*name, exact.get(*name)?.to_f64()))).collect();
    let width = parallel_replicas(job.precise);
    let mut squares: HashMap<String, Vec<f64>> = HashMap::new();
    let replicas: Vec<u64> = (0..u64::from(noise.replicas)).collect();
    for (done, group) in replicas.chunks(width).enumerate() {
        (job.progress)(Stage::Noise, (done * width) as f64 / replicas.len().max(1) as f64 * 0.7);
        let results: Vec<Vec<(String, f64)>> = group
            .par_iter()
            .map(|replica| deviations(job, noise, *replica, &reference))
            .collect::<Result<_, _>>()?;
        for (name, square) in results.into_iter().flatten() {
            squares.entry(name).or_default().push(square);
        }
    }
    if let (Some(samples), true) = (&job.prepared.samples, job.plan.evaluate) {
        (job.progress)(Stage::Noise, 0.7);
        evaluation_floors(job, noise, samples, exact, &mut squares)?;
    }
    for row in rows {
        let (Some(squares), Some(value)) = (squares.get(&row.name), exact.get(&row.name)) else { continue };
        let store =
            noise.model.c_store * stored_dtype(row, job.precise).unit_roundoff() * norm(&value.to_f64());
        row.floor = Some(floor(squares, store, row.elements()));
    }
    Ok(())
}

/// The dtype whose rounding a quantity carries: metrics are f64 numbers made from a loss.
fn stored_dtype(row: &Quantity, precise: &Program) -> DType {
    match row.kind {
        QuantityKind::Metric => precise.outputs.loss.map_or(row.dtype, |id| precise.value(id).dtype),
        _ => row.dtype,
    }
}

/// Squared distance of every quantity of one noisy replica from the exact reference.
fn deviations(
    job: &Job<'_>,
    noise: &NoisePlan,
    replica: u64,
    reference: &HashMap<&str, Vec<f64>>,
) -> Result<Vec<(String, f64)>, RunError> {
    let engine = ReferenceEngine::with_noise(spec(noise, job.plan.target.precision, replica));
    let captures = &job.plan.captures;
    let options = PassOptions {
        capture: captures.activations,
        gradients: captures.gradients,
        activation_gradients: captures.gradients && captures.activation_gradients,
        trace: false,
    };
    let feed = job.prepared.feed(job.precise, &job.prepared.batch);
    let output = run_pass(&engine, job.precise, &feed, options).map_err(|e| job.pass_error(e))?;
    let noisy = Delivered::of(output).tensors;
    Ok(noisy
        .into_iter()
        .filter_map(|(name, tensor)| {
            let exact = reference.get(name.as_str())?;
            let square = squared_distance(&tensor.to_f64(), exact);
            Some((name, square))
        })
        .collect())
}

/// Floors of metrics and of the logits of each sample.
fn evaluation_floors(
    job: &Job<'_>,
    noise: &NoisePlan,
    samples: &Samples,
    exact: &mut BTreeMap<String, HostTensor>,
    squares: &mut HashMap<String, Vec<f64>>,
) -> Result<(), RunError> {
    let precision = job.plan.target.precision;
    let programs = samples
        .programs
        .iter()
        .map(|program| precision::rewrite(program, precision))
        .collect::<Result<Vec<_>, _>>()?;
    let Some(logits) = exact.get(Evaluation::LOGITS) else { return Ok(()) };
    let classes = logits.shape().last().copied().unwrap_or(1).max(1);
    let rows = logits.shape().get(..logits.shape().len().saturating_sub(1)).unwrap_or_default().to_vec();
    let (values, width) = (logits.to_f64(), programs.first().map_or(1, parallel_replicas));
    let mut sums = vec![0.0; values.len() / classes];
    let replicas: Vec<u64> = (0..u64::from(noise.evaluation_replicas)).collect();
    for group in replicas.chunks(width) {
        let results: Vec<Evaluated> = group
            .par_iter()
            .map(|replica| noisy_evaluation(job, noise, *replica, samples, &programs))
            .collect::<Result<_, _>>()?;
        for result in results {
            let noisy = result.logits.to_f64();
            for ((sum, a), b) in sums.iter_mut().zip(noisy.chunks(classes)).zip(values.chunks(classes)) {
                let largest = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, max_nan);
                *sum += largest * largest;
            }
            for (name, value) in metric_values(&result.summary) {
                let Some(reference) = exact.get(&name).and_then(|t| t.to_f64().first().copied()) else {
                    continue;
                };
                let difference = value - reference;
                squares.entry(name).or_default().push(difference * difference);
            }
        }
    }
    let count = replicas.len().max(1) as f64;
    let floors: Vec<f64> = sums.into_iter().map(|sum| (sum / count).sqrt()).collect();
    if let Ok(tensor) = HostTensor::from_f64(DType::F64, rows, &floors) {
        exact.insert(Evaluation::LOGIT_FLOOR.to_owned(), tensor);
    }
    Ok(())
}

fn noisy_evaluation(
    job: &Job<'_>,
    noise: &NoisePlan,
    replica: u64,
    samples: &Samples,
    programs: &[Program],
) -> Result<Evaluated, RunError> {
    let prepared: &Prepared = job.prepared;
    let mut tally = Tally::default();
    for (index, piece) in pieces(samples, programs).enumerate() {
        // Every piece has noise of its own: rounding does not repeat from batch to batch.
        let seed = NoisePlan { seed: noise.seed ^ (index as u64 + 1).rotate_left(32), ..*noise };
        let engine = ReferenceEngine::with_noise(spec(&seed, job.plan.target.precision, replica));
        let batch = piece.batch(prepared, samples)?;
        let feed = prepared.feed(piece.program, &batch);
        let output =
            run_pass(&engine, piece.program, &feed, PassOptions::default()).map_err(|e| job.pass_error(e))?;
        tally.add(output, batch.get(&samples.labels));
    }
    Ok(tally.finish())
}

fn spec(noise: &NoisePlan, precision: Precision, replica: u64) -> NoiseSpec {
    NoiseSpec { model: noise.model, formats: formats(precision), seed: noise.seed, replica }
}

/// Formats that a correct engine computes in: matrix products as the precision says, all
/// else as the dtype of the value.
fn formats(precision: Precision) -> Formats {
    std::sync::Arc::new(move |dtype, role| match role {
        Role::Matmul | Role::Conv | Role::Attention if dtype == precision.matmul() => {
            precision.matmul_format()
        }
        _ => FloatFormat::of(dtype),
    })
}

/// The floor of a quantity from the squared distances of its replicas.
fn floor(squares: &[f64], store: f64, elements: usize) -> Floor {
    let count = squares.len().max(1) as f64;
    let mean = squares.iter().sum::<f64>() / count;
    let variance = squares.iter().map(|s| (s - mean) * (s - mean)).sum::<f64>() / (count - 1.0);
    let most = elements.max(1) as f64;
    let freedom = 2.0 * mean * mean / variance;
    // One replica, or none that differs from another, says nothing about the spread.
    let freedom = if freedom.is_finite() { max_nan(1.0, min_nan(freedom, most)) } else { 1.0 };
    Floor {
        norm: max_nan(mean.sqrt(), store),
        replicas: u32::try_from(squares.len()).unwrap_or(u32::MAX),
        degrees_of_freedom: freedom,
    }
}

fn squared_distance(a: &[f64], b: &[f64]) -> f64 {
    if a.len() != b.len() {
        return f64::NAN;
    }
    // Equal infinities are no distance; anything else that is not finite is.
    a.iter().zip(b).map(|(a, b)| if a == b { 0.0 } else { (a - b) * (a - b) }).sum()
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|v| v * v).sum::<f64>().sqrt()
}

/// How many replicas may run at once: as many as there are threads, but no more than fit in
/// half of the free memory, each taken as all values of the program twice in f64 (forward
/// values that backward needs, and their gradients).
fn parallel_replicas(program: &Program) -> usize {
    let elements: usize = program.values.iter().map(|v| v.shape.iter().product::<usize>()).sum();
    let bytes = (elements as u64).saturating_mul(16).max(1);
    let free = crate::environment::free_memory_bytes().unwrap_or(u64::MAX) / 2;
    let fit = usize::try_from(free / bytes).unwrap_or(usize::MAX);
    fit.clamp(1, rayon::current_num_threads().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degrees_of_freedom_are_those_of_the_spread() {
        // Squares of sums of nu = 4 independent normal numbers: mean 4, variance 8.
        let squares = [4.0 + 8f64.sqrt(), 4.0 - 8f64.sqrt()];
        let got = floor(&squares, 0.0, 100);
        // Two samples: the unbiased variance is 16, so nu = 2.
        assert!((got.degrees_of_freedom - 2.0).abs() < 1e-12);
        assert_eq!((got.norm, got.replicas), (2.0, 2));
    }

    #[test]
    fn a_floor_is_never_below_the_error_of_storing() {
        assert_eq!(floor(&[0.0, 0.0], 1e-7, 5).norm, 1e-7);
        assert_eq!(floor(&[0.0, 0.0], 1e-7, 5).degrees_of_freedom, 1.0);
        assert_eq!(floor(&[4.0], 1.0, 1).degrees_of_freedom, 1.0);
    }

    #[test]
    fn degrees_of_freedom_stay_between_one_and_the_elements() {
        assert_eq!(floor(&[1.0, 1.0 + 1e-9], 0.0, 7).degrees_of_freedom, 7.0);
        assert_eq!(floor(&[1e-9, 100.0, 1e-9, 1e-9, 1e-9], 0.0, 7).degrees_of_freedom, 1.0);
    }

    #[test]
    fn nan_in_a_replica_stays_in_the_floor() {
        assert!(floor(&[1.0, f64::NAN], 0.5, 3).norm.is_nan());
        assert!(squared_distance(&[f64::NAN], &[1.0]).is_nan());
        assert_eq!(squared_distance(&[f64::INFINITY], &[f64::INFINITY]), 0.0);
        assert!(squared_distance(&[1.0], &[1.0, 2.0]).is_nan());
    }

    #[test]
    fn tf32_changes_the_format_of_matrix_products_only() {
        let formats = formats(Precision::Tf32);
        assert!(formats(DType::F32, Role::Matmul).u_in > 0.0);
        assert_eq!(formats(DType::F32, Role::Softmax).u_in, 0.0);
    }
}
