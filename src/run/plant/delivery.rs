//! Faults in what a target hands over after it computed the right thing.

use std::collections::BTreeMap;

use super::{Plant, PlantKind};
use crate::tensor::{Bytes, HostTensor};

/// Applies a fault of delivery to the delivered tensors; other faults change nothing here.
pub(in crate::run) fn deliver(plant: Option<&Plant>, tensors: &mut BTreeMap<String, HostTensor>) {
    match plant.map(|p| (&p.kind, &p.place)) {
        Some((PlantKind::NoTensors, _)) => tensors.clear(),
        Some((PlantKind::Truncate, place)) => {
            let name = match place {
                Some(name) => Some(name.clone()),
                // The last activation with more than one element.
                None => tensors
                    .iter()
                    .rev()
                    .find(|(name, t)| name.starts_with("activation/") && t.elements() > 1)
                    .map(|(name, _)| name.clone()),
            };
            if let Some(tensor) = name.and_then(|name| tensors.get_mut(&name))
                && let Some(short) = without_last(tensor)
            {
                *tensor = short;
            }
        }
        _ => {}
    }
}

/// The same values, flat, without the last one.
fn without_last(tensor: &HostTensor) -> Option<HostTensor> {
    let elements = tensor.elements().checked_sub(1)?;
    let bytes = tensor.bytes().get(..elements * tensor.dtype().size())?;
    HostTensor::new(tensor.dtype(), vec![elements], Bytes::Owned(bytes.into())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numerics::DType;

    fn tensors() -> BTreeMap<String, HostTensor> {
        let t = HostTensor::from_f64(DType::F32, vec![2, 2], &[1.0, 2.0, 3.0, 4.0]).unwrap();
        [("activation/a".to_owned(), t.clone()), ("loss".to_owned(), t)].into()
    }

    #[test]
    fn truncation_takes_the_last_element_of_one_tensor() {
        let mut got = tensors();
        deliver(Some(&"truncate".parse().unwrap()), &mut got);
        assert_eq!(got["activation/a"].shape(), [3]);
        assert_eq!(got["loss"].shape(), [2, 2]);
        let mut got = tensors();
        deliver(Some(&"truncate:loss".parse().unwrap()), &mut got);
        assert_eq!(got["loss"].shape(), [3]);
    }

    #[test]
    fn no_tensors_means_none() {
        let mut got = tensors();
        deliver(Some(&"no-tensors".parse().unwrap()), &mut got);
        assert!(got.is_empty());
        let mut got = tensors();
        deliver(Some(&"nan".parse().unwrap()), &mut got);
        assert_eq!(got.len(), 2);
    }
}
