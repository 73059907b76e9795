//! [`CandleEngine`]: opening a device, and what it says about itself.

use candle_core::Device;

use super::run::caught;
use super::situation::Backend;
use crate::engine::{DeviceKind, DeviceSpec, EngineError};
use crate::program::OpKind;

/// Version of candle; a test holds it against the lock file.
pub const VERSION: &str = "0.11.1";

/// Which of candle's kernels are used where there are several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelSet {
    /// Those with a gradient.
    #[default]
    Default,
    /// The fast ones without a gradient: forward only.
    Fused,
}

impl KernelSet {
    /// Lower-case name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Fused => "fused",
        }
    }
}

/// candle on one device.
#[derive(Clone, Debug)]
pub struct CandleEngine {
    pub(super) device: Device,
    pub(super) spec: DeviceSpec,
    pub(super) kernels: KernelSet,
    pub(super) candid: bool,
}

impl CandleEngine {
    /// Opens a device with the default kernel set.
    ///
    /// # Errors
    /// [`EngineError::Absent`] if this build or this machine does not have the device.
    pub fn new(device: &DeviceSpec) -> Result<Self, EngineError> {
        Self::with_kernels(device, KernelSet::Default)
    }

    /// Opens a device with the kernel set named.
    ///
    /// # Errors
    /// [`EngineError::Absent`] if this build or this machine does not have the device.
    pub fn with_kernels(device: &DeviceSpec, kernels: KernelSet) -> Result<Self, EngineError> {
        let absent = |reason: String| {
            let built = match device.kind {
                DeviceKind::Cpu => true,
                DeviceKind::Cuda => cfg!(feature = "cuda"),
                DeviceKind::Metal => cfg!(feature = "metal"),
                DeviceKind::Mps | DeviceKind::MpsEmulated => false,
            };
            EngineError::Absent { target: format!("candle:{device}"), built, reason }
        };
        let index = device.index;
        let opened = match device.kind {
            DeviceKind::Cpu => Ok(Device::Cpu),
            // Drivers that are missing can panic inside, rather than fail.
            DeviceKind::Cuda => caught(|| Device::new_cuda(index)),
            DeviceKind::Metal => caught(|| Device::new_metal(index)),
            DeviceKind::Mps | DeviceKind::MpsEmulated => {
                return Err(absent("candle has no device `mps`; it calls it `metal`".to_owned()));
            }
        };
        let device_value = opened.map_err(|message| absent(remedy(device.kind, &message)))?;
        Ok(Self { device: device_value, spec: *device, kernels, candid: false })
    }

    /// Does what candle's own layers do when a gradient will be asked for: run the kernel that
    /// has none, without a word. By default such a call is declined; conformance wants to see
    /// what a user of candle gets.
    #[must_use]
    pub const fn candid(mut self) -> Self {
        self.candid = true;
        self
    }

    /// Operators for which the fused kernel set differs from the default one.
    #[must_use]
    pub const fn fused_operators() -> [OpKind; 4] {
        [OpKind::LayerNorm, OpKind::RmsNorm, OpKind::Softmax, OpKind::ScaledDotProductAttention]
    }

    /// The kernel set.
    #[must_use]
    pub const fn kernels(&self) -> KernelSet {
        self.kernels
    }

    pub(super) const fn backend(&self) -> Backend {
        match self.device {
            Device::Cpu => Backend::Cpu,
            Device::Cuda(_) => Backend::Cuda,
            Device::Metal(_) => Backend::Metal,
        }
    }

    /// Engine and device, for messages.
    pub(super) fn label(&self) -> String {
        format!("candle:{}", self.spec)
    }

    /// Switches that change numbers.
    pub(super) fn modes(&self) -> Vec<(String, String)> {
        let mut modes = vec![("kernels".to_owned(), self.kernels.name().to_owned())];
        let mut say = |name: &str, value: String| modes.push((name.to_owned(), value));
        match &self.device {
            Device::Cpu => {
                say("mkl", candle_core::utils::has_mkl().to_string());
                say("accelerate", candle_core::utils::has_accelerate().to_string());
                say("threads", candle_core::utils::get_num_threads().to_string());
            }
            Device::Cuda(_) => reduced_precision(&mut say),
            Device::Metal(_) => {
                let key = "CANDLE_METAL_ENABLE_FAST_MATH";
                say(key, std::env::var(key).unwrap_or_else(|_| "unset (fast math on)".to_owned()));
            }
        }
        modes
    }
}

#[cfg(feature = "cuda")]
fn reduced_precision(say: &mut impl FnMut(&str, String)) {
    use candle_core::cuda_backend as cuda;
    say("gemm_reduced_precision_f32", cuda::gemm_reduced_precision_f32().to_string());
    say("gemm_reduced_precision_f16", cuda::gemm_reduced_precision_f16().to_string());
    say("gemm_reduced_precision_bf16", cuda::gemm_reduced_precision_bf16().to_string());
}

#[cfg(not(feature = "cuda"))]
fn reduced_precision(_say: &mut impl FnMut(&str, String)) {}

/// candle's words, and what to do.
fn remedy(kind: DeviceKind, message: &str) -> String {
    let (compiled, feature, machine) = match kind {
        DeviceKind::Cuda => (cfg!(feature = "cuda"), "cuda", "an NVIDIA GPU with its driver"),
        DeviceKind::Metal => (cfg!(feature = "metal"), "metal", "an Apple GPU"),
        DeviceKind::Cpu | DeviceKind::Mps | DeviceKind::MpsEmulated => return message.to_owned(),
    };
    if compiled {
        format!("{message}; run this on a machine with {machine}, or choose another device")
    } else {
        format!("{message}; build with `--features {feature}` on a machine with {machine}")
    }
}
