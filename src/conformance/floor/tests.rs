//! The floor of known cases.

use super::{Rounding, local};
use crate::numerics::{DType, ErrorModel, FloatFormat, Role};
use crate::program::Op;
use crate::tensor::HostTensor;

fn correct(dtype: DType, _: Role) -> FloatFormat {
    FloatFormat::of(dtype)
}

fn rounding() -> Rounding<'static> {
    Rounding { model: ErrorModel::default(), formats: &correct }
}

fn host(dtype: DType, shape: &[usize], values: &[f64]) -> HostTensor {
    HostTensor::from_f64(dtype, shape.to_vec(), values).unwrap()
}

const U: f64 = 5.960_464_477_539_063e-8;

#[test]
fn a_sum_that_cancels_has_the_error_of_its_terms() {
    let sum = Op::Sum { dims: vec![], keepdim: false };
    let x = host(DType::F32, &[4], &[3.0, -3.0, 4.0, -4.0]);
    let found = local(&sum, &[x], &[None], &rounding()).unwrap();
    let expected = &found.results[0];
    assert_eq!(expected.values, [0.0]);
    // The root of 9 + 9 + 16 + 16, times 0.30 and the root of 4 terms, and one more step.
    let sigma = (0.30 * 2.0 + 0.425) * U * 50f64.sqrt();
    assert!((expected.sigma[0] / sigma - 1.0).abs() < 1e-6, "{} {sigma}", expected.sigma[0]);
}

#[test]
fn an_operator_that_moves_has_no_error_in_either_direction() {
    let flip = Op::Flip { dims: vec![0] };
    let x = host(DType::F16, &[3], &[1.0, 2.0, 3.0]);
    let g = host(DType::F16, &[3], &[0.5, 0.25, 1.0]);
    let found = local(&flip, &[x], &[Some(g)], &rounding()).unwrap();
    assert_eq!(found.results[0].sigma, [0.0; 3]);
    let gradient = found.gradients[0].as_ref().unwrap();
    assert_eq!(
        (gradient.values.as_slice(), gradient.sigma.as_slice()),
        (&[1.0, 0.25, 0.5][..], &[0.0; 3][..])
    );
}

#[test]
fn a_repeated_index_makes_a_sum_of_a_gradient() {
    let table = host(DType::F32, &[2, 1], &[1.0, 2.0]);
    let gradient = |index: &[f64]| {
        let index = host(DType::I64, &[2], index);
        let g = host(DType::F32, &[2, 1], &[1.0, 3.0]);
        let found = local(&Op::Embedding {}, &[table.clone(), index], &[Some(g)], &rounding()).unwrap();
        found.gradients[0].clone().unwrap()
    };
    assert_eq!(gradient(&[0.0, 1.0]).role, Role::Exact);
    let repeated = gradient(&[1.0, 1.0]);
    assert_eq!((repeated.role, repeated.values[1]), (Role::Reduction, 4.0));
    assert!(repeated.sigma[1] > 0.0 && repeated.sigma[0] == 0.0);
}

#[test]
fn a_norm_at_a_large_mean_has_the_error_of_the_mean() {
    let op = Op::LayerNorm { normalized_shape: vec![4], eps: 0.0 };
    let sigma = |mean: f64| {
        let x = host(DType::F32, &[1, 4], &[mean - 1.0, mean + 1.0, mean - 1.0, mean + 1.0]);
        local(&op, &[x], &[None], &rounding()).unwrap().results[0].sigma[0]
    };
    let ratio = sigma(1024.0) / sigma(0.0);
    assert!((500.0..1100.0).contains(&ratio), "{ratio}");
}

#[test]
fn a_gradient_written_in_a_stored_result_has_its_error() {
    // 1 − y² at y = 1 − 2^-11: the stored y is off by up to half a step.
    let x = host(DType::F16, &[1], &[4.0]);
    let g = host(DType::F16, &[1], &[1.0]);
    let found = local(&Op::Tanh {}, &[x], &[Some(g)], &rounding()).unwrap();
    let gradient = found.gradients[0].as_ref().unwrap();
    assert!(gradient.sigma[0] > 0.2 * gradient.values[0], "{gradient:?}");
}
