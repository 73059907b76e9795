//! From the profiler's activities to [`KernelEvidence`].

use super::native::{ProfileEvent, RawDevice};
use crate::engine::KernelEvidence;

/// Counts what ran on `device`: kernels by the operator that launched them, copies, time.
pub(super) fn count(device: RawDevice, activities: &[ProfileEvent]) -> KernelEvidence {
    let mut evidence = KernelEvidence { source: "kineto/CUPTI".to_owned(), ..KernelEvidence::default() };
    for activity in activities.iter().filter(|activity| activity.device == device) {
        match activity.activity.as_str() {
            "kernel" | "concurrent_kernel" => {
                evidence.kernels += 1;
                evidence.device_ns = evidence.device_ns.saturating_add(activity.duration_ns);
                let operator = activity.operator.as_deref().unwrap_or("unknown").to_owned();
                *evidence.operators.entry(operator).or_default() += 1;
            }
            "gpu_memcpy" | "gpu_memset" => evidence.copies += 1,
            _ => {}
        }
    }
    evidence
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity(kind: &str, device: RawDevice, operator: Option<&str>) -> ProfileEvent {
        ProfileEvent {
            name: "name".to_owned(),
            activity: kind.to_owned(),
            device,
            start_ns: 0,
            duration_ns: 5,
            correlation: 0,
            operator: operator.map(str::to_owned),
            bytes: None,
        }
    }

    #[test]
    fn only_kernels_of_the_device_asked_for_count() {
        let cuda = RawDevice::Cuda(0);
        let all = [
            activity("kernel", cuda, Some("aten::mm")),
            activity("concurrent_kernel", cuda, Some("aten::mm")),
            activity("kernel", cuda, None),
            activity("kernel", RawDevice::Cuda(1), Some("aten::mm")),
            activity("gpu_memcpy", cuda, None),
            activity("cuda_runtime", RawDevice::Cpu, None),
            activity("cpu_op", RawDevice::Cpu, None),
        ];
        let found = count(cuda, &all);
        assert_eq!((found.kernels, found.copies, found.device_ns), (3, 1, 15));
        assert_eq!(found.operators["aten::mm"], 2);
        assert_eq!(count(RawDevice::Cuda(2), &all).kernels, 0);
    }
}
