//! One or more argument sets for every operator.

use super::harness::host;
use crate::numerics::DType;
use crate::program::{Gelu, LossReduction, Op};
use crate::tensor::HostTensor;

/// An operator with its arguments.
pub(super) struct Case {
    pub op: Op,
    pub inputs: Vec<Input>,
}

/// How an argument is filled.
#[derive(Clone, Debug)]
pub(super) enum Input {
    /// Distinct values in −2..2, none near a kink.
    Any(Vec<usize>),
    /// Distinct values in 0.5..2.5.
    Positive(Vec<usize>),
    /// Values in 0.1..0.9.
    Probability(Vec<usize>),
    Index(Vec<usize>, usize),
    Mask(Vec<usize>),
}

use Input::{Any, Index, Mask, Positive, Probability};

/// A number in 0..1 that depends on nothing but the position.
fn fraction(seed: usize, i: usize) -> f64 {
    let mut x = (seed as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
        ^ (i as u64 + 1).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^= x >> 31;
    x = x.wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^= x >> 29;
    (x >> 11) as f64 / (1u64 << 53) as f64
}

impl Input {
    pub fn tensor(&self, seed: usize, dtype: DType) -> HostTensor {
        let fill = |shape: &[usize], dtype, f: &dyn Fn(usize) -> f64| {
            let n = shape.iter().product::<usize>();
            host(dtype, shape, &(0..n).map(f).collect::<Vec<_>>())
        };
        match self {
            // A grid of odd multiples: no value within 1/64 of an integer or of another.
            Any(shape) => fill(shape, dtype, &|i| {
                let n = shape.iter().product::<usize>().max(1);
                let rank = (i * 7 + seed * 3 + 1) % n;
                let x = 3.9 * ((rank as f64 + 0.3 + 0.4 * fraction(seed, i)) / n as f64) - 1.95;
                if (x - x.round()).abs() < 0.02 { x + 0.05 } else { x }
            }),
            Positive(shape) => fill(shape, dtype, &|i| 0.5 + 2.0 * fraction(seed, i)),
            Probability(shape) => fill(shape, dtype, &|i| 0.1 + 0.8 * fraction(seed, i)),
            Index(shape, below) => fill(shape, DType::I64, &|i| ((i * 5 + seed) % below) as f64),
            Mask(shape) => fill(shape, DType::U8, &|i| f64::from(fraction(seed, i) < 0.6)),
        }
    }
}

impl Case {
    pub fn tensors(&self, dtype: DType) -> Vec<HostTensor> {
        self.inputs.iter().enumerate().map(|(i, input)| input.tensor(i, dtype)).collect()
    }
}

fn any(shape: &[usize]) -> Input {
    Any(shape.to_vec())
}

fn case(op: Op, inputs: &[Input]) -> Case {
    Case { op, inputs: inputs.to_vec() }
}

pub(super) fn cases() -> Vec<Case> {
    let mut list = linear_algebra();
    list.extend(convolution());
    list.extend(pooling());
    list.extend(normalisation());
    list.extend(elementwise());
    list.extend(reduction());
    list.extend(indexing());
    list.extend(shapes());
    list.extend(losses());
    list
}

fn linear_algebra() -> Vec<Case> {
    let attention = |is_causal, scale| Op::ScaledDotProductAttention { is_causal, scale };
    let qkv = [any(&[2, 2, 3, 4]), any(&[2, 2, 5, 4]), any(&[2, 2, 5, 4])];
    let mut masked = qkv.to_vec();
    masked.push(any(&[3, 5]));
    vec![
        case(Op::Mm {}, &[any(&[3, 4]), any(&[4, 2])]),
        case(Op::Bmm {}, &[any(&[2, 3, 4]), any(&[2, 4, 2])]),
        case(Op::Matmul {}, &[any(&[2, 1, 3, 4]), any(&[3, 4, 2])]),
        case(Op::Matmul {}, &[any(&[2, 3, 4]), any(&[4, 2])]),
        case(Op::Addmm { beta: 0.5, alpha: 2.0 }, &[any(&[2]), any(&[3, 4]), any(&[4, 2])]),
        case(Op::Baddbmm { beta: 1.0, alpha: 0.5 }, &[any(&[3, 2]), any(&[2, 3, 4]), any(&[2, 4, 2])]),
        case(Op::Linear {}, &[any(&[3, 4]), any(&[2, 4]), any(&[2])]),
        case(Op::Linear {}, &[any(&[2, 3, 4]), any(&[2, 4])]),
        case(Op::Linear {}, &[any(&[4]), any(&[2, 4]), any(&[2])]),
        case(Op::Linear {}, &[any(&[2, 1, 2, 3, 4]), any(&[2, 4]), any(&[2])]),
        case(attention(false, None), &qkv),
        case(attention(true, Some(0.3)), &qkv),
        case(attention(false, None), &masked),
        case(attention(false, None), &[any(&[3, 4]), any(&[5, 4]), any(&[5, 6])]),
    ]
}

fn convolution() -> Vec<Case> {
    let conv2d = |stride, padding, dilation, groups| Op::Conv2d { stride, padding, dilation, groups };
    let x = any(&[2, 4, 6, 6]);
    vec![
        case(
            Op::Conv1d { stride: 1, padding: 1, dilation: 1, groups: 1 },
            &[any(&[2, 3, 7]), any(&[4, 3, 3]), any(&[4])],
        ),
        case(
            Op::Conv1d { stride: 2, padding: 1, dilation: 2, groups: 2 },
            &[any(&[2, 4, 9]), any(&[4, 2, 3])],
        ),
        case(conv2d([1, 1], [1, 1], [1, 1], 1), &[x.clone(), any(&[3, 4, 3, 3]), any(&[3])]),
        case(conv2d([2, 2], [0, 0], [1, 1], 1), &[x.clone(), any(&[3, 4, 2, 2]), any(&[3])]),
        case(conv2d([2, 2], [1, 1], [1, 1], 2), &[x.clone(), any(&[4, 2, 3, 3])]),
        case(conv2d([1, 1], [2, 2], [2, 2], 4), &[x.clone(), any(&[4, 1, 3, 3])]),
        case(conv2d([2, 1], [0, 1], [1, 2], 1), &[x, any(&[3, 4, 3, 2]), any(&[3])]),
        case(
            Op::ConvTranspose1d { stride: 2, padding: 1, output_padding: 1, groups: 1, dilation: 1 },
            &[any(&[2, 3, 5]), any(&[3, 2, 3]), any(&[2])],
        ),
        case(
            Op::ConvTranspose1d { stride: 1, padding: 0, output_padding: 0, groups: 2, dilation: 2 },
            &[any(&[2, 4, 5]), any(&[4, 2, 3])],
        ),
        case(
            Op::ConvTranspose2d {
                stride: [2, 2],
                padding: [1, 1],
                output_padding: [1, 1],
                groups: 1,
                dilation: [1, 1],
            },
            &[any(&[2, 3, 4, 4]), any(&[3, 2, 3, 3]), any(&[2])],
        ),
        case(
            Op::ConvTranspose2d {
                stride: [1, 1],
                padding: [0, 0],
                output_padding: [0, 0],
                groups: 2,
                dilation: [1, 1],
            },
            &[any(&[2, 4, 4, 4]), any(&[4, 2, 3, 3]), any(&[4])],
        ),
        case(
            Op::ConvTranspose2d {
                stride: [2, 1],
                padding: [1, 0],
                output_padding: [1, 0],
                groups: 1,
                dilation: [1, 2],
            },
            &[any(&[2, 3, 4, 4]), any(&[3, 2, 3, 2])],
        ),
    ]
}

fn pooling() -> Vec<Case> {
    let max = |k, stride, padding, dilation, ceil_mode| Op::MaxPool2d {
        kernel_size: [k, k],
        stride: [stride, stride],
        padding: [padding, padding],
        dilation: [dilation, dilation],
        ceil_mode,
    };
    let avg = |k, stride, padding, ceil_mode, count_include_pad| Op::AvgPool2d {
        kernel_size: [k, k],
        stride: [stride, stride],
        padding: [padding, padding],
        ceil_mode,
        count_include_pad,
    };
    let x = [any(&[2, 2, 6, 6])];
    let odd = [any(&[1, 2, 5, 5])];
    let adaptive = |output_size| Op::AdaptiveAvgPool2d { output_size };
    let nearest = |output_size| Op::UpsampleNearest2d { output_size };
    let bilinear = |output_size, align_corners| Op::UpsampleBilinear2d { output_size, align_corners };
    vec![
        case(max(2, 2, 0, 1, false), &x),
        case(max(3, 2, 1, 1, false), &x),
        case(max(3, 1, 0, 1, false), &x),
        case(max(2, 2, 0, 2, false), &x),
        case(max(2, 2, 0, 1, true), &odd),
        case(avg(2, 2, 0, false, true), &x),
        case(avg(3, 1, 0, false, true), &x),
        case(avg(2, 2, 1, false, true), &x),
        case(avg(3, 2, 1, false, false), &x),
        case(avg(2, 2, 0, true, true), &odd),
        case(adaptive([1, 1]), &x),
        case(adaptive([3, 2]), &x),
        case(adaptive([3, 4]), &odd),
        case(nearest([12, 12]), &x),
        case(nearest([9, 12]), &x),
        case(bilinear([9, 12], false), &x),
        case(bilinear([12, 12], true), &x),
    ]
}

fn normalisation() -> Vec<Case> {
    let layer = |shape: &[usize]| Op::LayerNorm { normalized_shape: shape.to_vec(), eps: 1e-5 };
    let rms = |shape: &[usize]| Op::RmsNorm { normalized_shape: shape.to_vec(), eps: 1e-6 };
    let x = any(&[2, 4, 3, 5]);
    let c = any(&[4]);
    let batch = |training| Op::BatchNorm { training, momentum: 0.1, eps: 1e-5 };
    let stats = [x.clone(), c.clone(), c.clone(), c.clone(), Positive(vec![4])];
    vec![
        case(layer(&[5]), &[any(&[2, 3, 5]), any(&[5]), any(&[5])]),
        case(layer(&[5]), &[any(&[2, 3, 5])]),
        case(layer(&[3, 5]), &[any(&[2, 3, 5]), any(&[3, 5]), any(&[3, 5])]),
        case(rms(&[5]), &[any(&[2, 3, 5]), any(&[5])]),
        case(rms(&[5]), &[any(&[2, 3, 5])]),
        case(rms(&[3, 5]), &[any(&[2, 3, 5]), any(&[3, 5])]),
        case(Op::GroupNorm { num_groups: 2, eps: 1e-5 }, &[x.clone(), c.clone(), c.clone()]),
        case(Op::GroupNorm { num_groups: 2, eps: 1e-5 }, &[any(&[3, 4])]),
        case(batch(false), &stats),
        case(batch(true), &stats),
    ]
}

fn elementwise() -> Vec<Case> {
    let x = || [any(&[3, 4])];
    let positive = || [Positive(vec![3, 4])];
    let two = || [any(&[3, 4]), any(&[4])];
    vec![
        case(Op::Relu {}, &x()),
        case(Op::Gelu { approximate: Gelu::None }, &x()),
        case(Op::Gelu { approximate: Gelu::Tanh }, &x()),
        case(Op::Silu {}, &x()),
        case(Op::Sigmoid {}, &x()),
        case(Op::Tanh {}, &x()),
        case(Op::Softplus { beta: 2.0, threshold: 3.0 }, &x()),
        case(Op::LeakyRelu { negative_slope: 0.1 }, &x()),
        case(Op::Hardswish {}, &x()),
        case(Op::Exp {}, &x()),
        case(Op::Log {}, &positive()),
        case(Op::Sqrt {}, &positive()),
        case(Op::Rsqrt {}, &positive()),
        case(Op::Reciprocal {}, &positive()),
        case(Op::Erf {}, &x()),
        case(Op::Sin {}, &x()),
        case(Op::Cos {}, &x()),
        case(Op::Abs {}, &x()),
        case(Op::Neg {}, &x()),
        case(Op::PowScalar { exponent: 1.5 }, &positive()),
        case(Op::PowScalar { exponent: 2.0 }, &x()),
        case(Op::Clamp { min: Some(-0.5), max: Some(0.75) }, &x()),
        case(Op::Clamp { min: None, max: Some(0.75) }, &x()),
        case(Op::AddScalar { value: 0.7 }, &x()),
        case(Op::MulScalar { value: -1.3 }, &x()),
        case(Op::Add {}, &two()),
        case(Op::Sub {}, &two()),
        case(Op::Mul {}, &two()),
        case(Op::Div {}, &[any(&[3, 4]), Positive(vec![3, 1])]),
        case(Op::Maximum {}, &two()),
        case(Op::Minimum {}, &two()),
        case(Op::Softmax { dim: -1 }, &x()),
        case(Op::Softmax { dim: 0 }, &x()),
        case(Op::LogSoftmax { dim: -1 }, &x()),
        case(Op::Cast { dtype: DType::F64 }, &x()),
        case(Op::Cast { dtype: DType::F32 }, &x()),
        case(Op::Cast { dtype: DType::BF16 }, &x()),
        case(Op::Cast { dtype: DType::F16 }, &x()),
        case(Op::Dropout { p: 0.25 }, &[any(&[3, 4]), Mask(vec![3, 4])]),
    ]
}

fn reduction() -> Vec<Case> {
    let x = || [any(&[3, 4, 5])];
    let mut list = Vec::new();
    for (dims, keepdim) in [(vec![], false), (vec![], true), (vec![-1], false), (vec![0, 2], true)] {
        list.push(case(Op::Sum { dims: dims.clone(), keepdim }, &x()));
        list.push(case(Op::Mean { dims: dims.clone(), keepdim }, &x()));
        list.push(case(Op::Var { dims: dims.clone(), correction: 1.0, keepdim }, &x()));
        list.push(case(Op::Amax { dims: dims.clone(), keepdim }, &x()));
        list.push(case(Op::Amin { dims: dims.clone(), keepdim }, &x()));
        list.push(case(Op::Logsumexp { dims, keepdim }, &x()));
    }
    list.push(case(Op::Var { dims: vec![1], correction: 0.0, keepdim: true }, &x()));
    list.push(case(Op::Cumsum { dim: 1 }, &x()));
    list.push(case(Op::Argmax { dim: 1, keepdim: false }, &x()));
    list.push(case(Op::Argmax { dim: -1, keepdim: true }, &x()));
    list.push(case(Op::Topk { k: 2, dim: 1, largest: true }, &x()));
    list.push(case(Op::Topk { k: 3, dim: -1, largest: false }, &x()));
    list.push(case(Op::Sort { dim: -1, descending: true }, &x()));
    list.push(case(Op::Sort { dim: 0, descending: false }, &x()));
    list
}

fn indexing() -> Vec<Case> {
    let x = any(&[5, 4]);
    vec![
        case(Op::Embedding {}, &[x.clone(), Index(vec![2, 3], 5)]),
        case(Op::IndexSelect { dim: 1 }, &[x.clone(), Index(vec![3], 4)]),
        case(Op::Gather { dim: 0 }, &[x.clone(), Index(vec![3, 4], 5)]),
        case(Op::Gather { dim: 1 }, &[x.clone(), Index(vec![3, 2], 4)]),
        case(Op::ScatterAdd { dim: 0 }, &[x.clone(), Index(vec![3, 4], 5), any(&[3, 4])]),
        case(Op::ScatterAdd { dim: 1 }, &[x.clone(), Index(vec![5, 4], 4), any(&[5, 4])]),
        case(Op::ScatterAdd { dim: 0 }, &[x.clone(), Index(vec![3, 4], 5), any(&[4, 4])]),
        case(Op::ScatterAdd { dim: 0 }, &[x.clone(), Index(vec![3, 2], 5), any(&[3, 2])]),
        case(Op::IndexPut { accumulate: true }, &[x.clone(), Index(vec![3], 5), any(&[3, 4])]),
        case(Op::IndexPut { accumulate: false }, &[x.clone(), Index(vec![3], 5), any(&[3, 4])]),
        case(Op::Where {}, &[Mask(vec![5, 1]), x.clone(), any(&[4])]),
        case(Op::MaskedFill { value: -2.5 }, &[x, Mask(vec![4])]),
    ]
}

fn shapes() -> Vec<Case> {
    let x = || [any(&[3, 4, 5])];
    let two = [any(&[3, 4]), any(&[3, 4])];
    vec![
        case(Op::Reshape { shape: vec![5, -1] }, &x()),
        case(Op::Permute { dims: vec![2, 0, 1] }, &x()),
        case(Op::Expand { shape: vec![2, 3, -1] }, &[any(&[1, 4])]),
        case(Op::Slice { dim: 1, start: 1, end: -1, step: 1 }, &x()),
        case(Op::Slice { dim: -1, start: 0, end: 9, step: 2 }, &x()),
        case(Op::Select { dim: 1, index: -2 }, &x()),
        case(Op::Cat { dim: -1 }, &two),
        case(Op::Cat { dim: 0 }, &two),
        case(Op::Stack { dim: 1 }, &two),
        case(Op::Split { split_size: 2, dim: 2 }, &x()),
        case(Op::Pad { pad: vec![1, 2, 0, -1], value: 0.0 }, &x()),
        case(Op::Pad { pad: vec![2, -1], value: 1.5 }, &x()),
        case(Op::Roll { shifts: vec![1, -2], dims: vec![0, 2] }, &x()),
        case(Op::Flip { dims: vec![0, -1] }, &x()),
        case(Op::RepeatInterleave { repeats: 2, dim: 1 }, &x()),
    ]
}

fn losses() -> Vec<Case> {
    use LossReduction::{BatchMean, Mean, Sum};
    let labels = Index(vec![4], 3);
    let scores = any(&[4, 3]);
    let classes = |ignore_index, label_smoothing, reduction| Op::CrossEntropy {
        ignore_index,
        label_smoothing,
        reduction,
    };
    let pair = [any(&[4, 3]), Probability(vec![4, 3])];
    let mut list = vec![
        case(classes(-100, 0.0, Mean), &[scores.clone(), labels.clone()]),
        case(classes(-100, 0.1, Mean), &[scores.clone(), labels.clone()]),
        case(classes(1, 0.0, Sum), &[scores.clone(), labels.clone()]),
        case(classes(1, 0.1, Mean), &[scores.clone(), labels.clone(), Positive(vec![3])]),
        case(Op::NllLoss { ignore_index: -100, reduction: Mean }, &[scores.clone(), labels.clone()]),
        case(Op::NllLoss { ignore_index: 0, reduction: Sum }, &[scores, labels, Positive(vec![3])]),
        case(Op::KlDiv { log_target: false, reduction: BatchMean }, &pair),
        case(Op::KlDiv { log_target: true, reduction: Mean }, &pair),
        case(Op::SmoothL1Loss { beta: 0.0, reduction: Mean }, &pair),
    ];
    for reduction in [Mean, Sum] {
        list.push(case(Op::MseLoss { reduction }, &pair));
        list.push(case(Op::L1Loss { reduction }, &pair));
        list.push(case(Op::SmoothL1Loss { beta: 0.75, reduction }, &pair));
        list.push(case(Op::BceWithLogits { reduction }, &pair));
    }
    list
}
