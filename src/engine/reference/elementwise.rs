//! Elementwise helpers: map, zip, broadcasting and layout. Parallel above a size threshold;
//! each element depends on its own inputs only, so the split cannot change a bit.

use ndarray::{ArcArray, ArrayD, ArrayViewD, IxDyn, Zip};

use super::tensor::Floats;

/// Elements from which on an elementwise pass is worth several threads.
pub(super) const PARALLEL: usize = 1 << 15;

/// `f` of every element.
pub(super) fn map(x: &Floats, f: impl Fn(f64) -> f64 + Sync + Send) -> ArrayD<f64> {
    if x.len() < PARALLEL { x.mapv(f) } else { Zip::from(x).par_map_collect(|v| f(*v)) }
}

/// `f` of every pair of elements of two arrays of one shape.
pub(super) fn zip(a: &Floats, b: &Floats, f: impl Fn(f64, f64) -> f64 + Sync + Send) -> ArrayD<f64> {
    let zip = Zip::from(a).and(b);
    if a.len() < PARALLEL { zip.map_collect(|a, b| f(*a, *b)) } else { zip.par_map_collect(|a, b| f(*a, *b)) }
}

/// `f` of every triple of elements of three arrays of one shape.
pub(super) fn zip3(
    a: &Floats,
    b: &Floats,
    c: &Floats,
    f: impl Fn(f64, f64, f64) -> f64 + Sync + Send,
) -> ArrayD<f64> {
    let zip = Zip::from(a).and(b).and(c);
    if a.len() < PARALLEL {
        zip.map_collect(|a, b, c| f(*a, *b, *c))
    } else {
        zip.par_map_collect(|a, b, c| f(*a, *b, *c))
    }
}

/// `f` of every pair of elements after both operands are broadcast to `shape`.
pub(super) fn zip_broadcast<A: Sync, B: Sync, R: Send + Clone>(
    a: &ArcArray<A, IxDyn>,
    b: &ArcArray<B, IxDyn>,
    shape: &[usize],
    f: impl Fn(&A, &B) -> R + Sync + Send,
) -> ArrayD<R> {
    let zip = Zip::from(stretch(a, shape)).and(stretch(b, shape));
    let elements: usize = shape.iter().product();
    if elements < PARALLEL { zip.map_collect(f) } else { zip.par_map_collect(f) }
}

/// A view of `x` under a larger shape that it broadcasts to.
pub(super) fn stretch<'a, A>(x: &'a ArcArray<A, IxDyn>, shape: &[usize]) -> ArrayViewD<'a, A> {
    x.broadcast(IxDyn(shape)).unwrap_or_else(|| unreachable!("inference checked that shapes broadcast"))
}

/// The same values in row-major order; shared when they already are.
pub(super) fn contiguous<A: Clone>(x: &ArcArray<A, IxDyn>) -> ArcArray<A, IxDyn> {
    if x.is_standard_layout() { x.clone() } else { x.as_standard_layout().into_owned().into_shared() }
}

/// Row-major reinterpretation under `shape`; shares the values when they are row-major.
pub(super) fn reshaped<A: Clone>(x: &ArcArray<A, IxDyn>, shape: &[usize]) -> ArcArray<A, IxDyn> {
    contiguous(x)
        .into_shape_with_order(IxDyn(shape))
        .unwrap_or_else(|_| unreachable!("inference checked the number of elements"))
}

/// The elements of a row-major array.
pub(super) fn slice<A>(x: &ArcArray<A, IxDyn>) -> &[A] {
    x.as_slice().unwrap_or_else(|| unreachable!("the array was made row-major"))
}

/// An owned array of `shape` over row-major values.
pub(super) fn from_vec<A>(shape: &[usize], values: Vec<A>) -> ArrayD<A> {
    ArrayD::from_shape_vec(IxDyn(shape), values)
        .unwrap_or_else(|_| unreachable!("as many values as the shape has elements"))
}

/// `x` with `axis` moved to the end.
pub(super) fn axis_last<A>(x: ArcArray<A, IxDyn>, axis: usize) -> ArcArray<A, IxDyn> {
    let mut order: Vec<usize> = (0..x.ndim()).filter(|d| *d != axis).collect();
    order.push(axis);
    x.permuted_axes(IxDyn(&order))
}

/// Undoes [`axis_last`].
pub(super) fn axis_back<A>(x: ArcArray<A, IxDyn>, axis: usize) -> ArcArray<A, IxDyn> {
    let mut order: Vec<usize> = (0..x.ndim().saturating_sub(1)).collect();
    order.insert(axis, x.ndim() - 1);
    x.permuted_axes(IxDyn(&order))
}
