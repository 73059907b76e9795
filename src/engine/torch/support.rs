//! What libtorch has in which dtype: declared here, tested against libtorch itself.

use crate::engine::{DeviceKind, Support};
use crate::numerics::DType;
use crate::program::{Op, OpKind, Value};
use crate::trace::Phase;

/// The declared set for one kind of device.
pub(super) fn supports(device: DeviceKind, op: &Op, dtype: DType, types: &[&Value], phase: Phase) -> Support {
    let floats = std::iter::once(dtype).chain(types.iter().map(|value| value.dtype));
    if matches!(device, DeviceKind::Mps | DeviceKind::MpsEmulated)
        && (floats.into_iter().any(|dtype| dtype == DType::F64) || casts_to_f64(op))
    {
        return Support::Unsupported("Apple's GPUs have no f64".to_owned());
    }
    if phase == Phase::Backward && op.kind() == OpKind::Argmax {
        return Support::Unsupported("an index has no gradient".to_owned());
    }
    Support::Native
}

const fn casts_to_f64(op: &Op) -> bool {
    matches!(op, Op::Cast { dtype: DType::F64 })
}
