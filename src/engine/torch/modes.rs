//! Switches of libtorch that change numbers: part of a target's precision.

/// What a target asks of libtorch's process-wide switches. Everything that is not named
/// here is off: reduced-precision reductions and accumulation, cuDNN's benchmarking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModeSettings {
    /// TF32 in matrix products and convolutions: for the precision `tf32` alone.
    pub tf32: bool,
    /// Only deterministic algorithms; operators that have none fail.
    pub deterministic: bool,
    /// Threads inside one operator; libtorch's choice if not given.
    pub threads: Option<usize>,
}

/// Environment variables of libtorch and its libraries that change what runs where, or how.
pub const ENVIRONMENT: [&str; 5] = [
    "PYTORCH_ENABLE_MPS_FALLBACK",
    "PYTORCH_MPS_FAST_MATH",
    "PYTORCH_MPS_PREFER_METAL",
    "NVIDIA_TF32_OVERRIDE",
    "CUBLAS_WORKSPACE_CONFIG",
];

#[cfg(feature = "torch")]
pub(super) use with_libtorch::{apply, read};

#[cfg(feature = "torch")]
mod with_libtorch {
    use super::{ENVIRONMENT, ModeSettings};
    use crate::engine::torch::native::{
        MatmulPrecision, NativeError, Switches, apply_switches, read_switches, set_intra_op_threads, threads,
    };

    /// Sets every switch; the first one that libtorch did not take is named.
    pub(in crate::engine::torch) fn apply(settings: &ModeSettings) -> Result<(), String> {
        let wanted = Switches {
            tf32_cublas: settings.tf32,
            tf32_cudnn: settings.tf32,
            fp16_reduction_cublas: false,
            bf16_reduction_cublas: false,
            fp16_accumulation_cublas: false,
            half_reduction_math_sdp: false,
            fp16_reduction_cpu: false,
            deterministic_algorithms: settings.deterministic,
            deterministic_warn_only: false,
            cudnn_benchmark: false,
            cudnn_deterministic: settings.deterministic,
            float32_matmul_precision: if settings.tf32 {
                MatmulPrecision::High
            } else {
                MatmulPrecision::Highest
            },
        };
        let words = |e: NativeError| e.to_string();
        apply_switches(wanted).map_err(words)?;
        let found = read_switches().map_err(words)?;
        let names = named(&wanted).into_iter().zip(named(&found));
        for ((name, wanted), (_, found)) in names {
            if wanted != found {
                return Err(format!("libtorch kept {name} = {found}, {wanted} was asked for"));
            }
        }
        if let Some(count) = settings.threads {
            let count = i32::try_from(count).map_err(|_| format!("{count} threads are too many"))?;
            set_intra_op_threads(count).map_err(words)?;
        }
        Ok(())
    }

    /// Names and values as they are now.
    pub(in crate::engine::torch) fn read() -> Vec<(String, String)> {
        let mut modes = match read_switches() {
            Ok(switches) => named(&switches),
            Err(error) => vec![("switches".to_owned(), format!("unreadable: {error}"))],
        };
        for name in ENVIRONMENT {
            let value = std::env::var(name).unwrap_or_else(|_| "unset".to_owned());
            modes.push((name.to_owned(), value));
        }
        if let Ok((inside, between)) = threads() {
            modes.push(("threads".to_owned(), inside.to_string()));
            modes.push(("inter_op_threads".to_owned(), between.to_string()));
        }
        modes
    }

    fn named(switches: &Switches) -> Vec<(String, String)> {
        let precision = match switches.float32_matmul_precision {
            MatmulPrecision::Highest => "highest",
            MatmulPrecision::High => "high",
            MatmulPrecision::Medium => "medium",
        };
        let flags = [
            ("allow_tf32_matmul", switches.tf32_cublas),
            ("allow_tf32_cudnn", switches.tf32_cudnn),
            ("allow_f16_reduced_precision_reduction", switches.fp16_reduction_cublas),
            ("allow_bf16_reduced_precision_reduction", switches.bf16_reduction_cublas),
            ("allow_f16_accumulation", switches.fp16_accumulation_cublas),
            ("allow_reduced_precision_attention", switches.half_reduction_math_sdp),
            ("allow_f16_reduced_precision_reduction_cpu", switches.fp16_reduction_cpu),
            ("deterministic_algorithms", switches.deterministic_algorithms),
            ("deterministic_warn_only", switches.deterministic_warn_only),
            ("cudnn_benchmark", switches.cudnn_benchmark),
            ("cudnn_deterministic", switches.cudnn_deterministic),
        ];
        let mut named = vec![("float32_matmul_precision".to_owned(), precision.to_owned())];
        named.extend(flags.into_iter().map(|(name, on)| (name.to_owned(), on.to_string())));
        named
    }
}
