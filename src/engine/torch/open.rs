//! Whether a device is there, and getting hold of it.

use tch::Device;

use super::native::{self, CudaPart};
use crate::engine::canary::Presence;
use crate::engine::{DeviceKind, DeviceSpec, EngineError};

/// The tch device of a specification, or why libtorch has none.
pub(super) fn open(spec: &DeviceSpec) -> Result<Device, EngineError> {
    let found = look(spec);
    // After the device's part of libtorch is loaded: to tell its version libtorch asks for
    // devices, and its first answer about them is its last.
    if let Err(reason) = versions_agree() {
        return Err(EngineError::Absent { target: format!("torch:{spec}"), built: false, reason });
    }
    match found {
        (presence, Some(device)) if presence.available => Ok(device),
        (presence, _) => Err(EngineError::Absent {
            target: format!("torch:{spec}"),
            built: presence.built,
            reason: presence.reason.unwrap_or_else(|| "libtorch says that it is not there".to_owned()),
        }),
    }
}

/// Built and available, with the reason if not.
pub(super) fn look(spec: &DeviceSpec) -> (Presence, Option<Device>) {
    let found = match spec.kind {
        DeviceKind::Cpu => return (Presence::available(), Some(Device::Cpu)),
        DeviceKind::Metal => Err("libtorch calls Apple's GPU mps; use torch:mps".to_owned()),
        DeviceKind::Cuda => return cuda(spec.index),
        DeviceKind::Mps | DeviceKind::MpsEmulated if spec.index != 0 => {
            Err(format!("there is one device of this kind, with index 0, not {}", spec.index))
        }
        DeviceKind::Mps if native::software_mps::is_registered() => {
            Err("the software device stands in the place of mps in this process; use torch:mps-emulated or \
                 another process"
                .to_owned())
        }
        DeviceKind::Mps => Ok(()),
        DeviceKind::MpsEmulated => native::software_mps::register().map_err(|e| e.to_string()),
    };
    match found {
        Err(reason) => (Presence::not_built(reason), None),
        Ok(()) => asked(
            Device::Mps,
            0,
            "this libtorch is built without MPS; it exists on macOS on Apple silicon alone",
        ),
    }
}

fn cuda(index: usize) -> (Presence, Option<Device>) {
    let not_built = match native::load_cuda_part() {
        Ok(CudaPart::Loaded(_) | CudaPart::Present) => {
            "libtorch's CUDA part is loaded but does not know CUDA".to_owned()
        }
        Ok(CudaPart::Absent(path)) => format!(
            "libtorch's CUDA part is not installed ({} is missing); use a libtorch with CUDA \
             (LIBTORCH, or LIBTORCH_USE_PYTORCH=1)",
            path.display()
        ),
        Ok(CudaPart::Failed(reason)) => format!("libtorch's CUDA part cannot be loaded: {reason}"),
        Err(error) => error.to_string(),
    };
    asked(Device::Cuda(index), index, &not_built)
}

fn asked(device: Device, index: usize, not_built: &str) -> (Presence, Option<Device>) {
    let found = match native::availability(device) {
        Ok(found) => found,
        Err(error) => return (Presence::not_built(error.to_string()), None),
    };
    let count = usize::try_from(found.count).unwrap_or(0);
    let presence = if !found.built {
        Presence::not_built(not_built.to_owned())
    } else if !found.available {
        Presence::not_available(
            "libtorch is built for it but finds no such device on this machine".to_owned(),
        )
    } else if index >= count {
        Presence::not_available(format!(
            "there are {count} of these devices, the highest index is {}",
            count.saturating_sub(1)
        ))
    } else {
        Presence::available()
    };
    (presence, Some(device))
}

/// Layouts differ between versions: another library than the one built against is refused.
fn versions_agree() -> Result<(), String> {
    let loaded = native::libtorch_version().map_err(|e| e.to_string())?;
    let built = native::headers_version();
    if loaded == built {
        return Ok(());
    }
    Err(format!(
        "the libtorch that is loaded is {loaded}, this program was built against {built}; build again with \
         the libtorch that is to be used, or take the other one off LD_LIBRARY_PATH"
    ))
}
