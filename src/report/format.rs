//! How numbers, sizes and names are written, the same in every renderer.

use crate::trace::Placement;
use crate::verdict::{DeviceSummary, Finding, TargetStatus, TargetSummary, Verdict};

/// A number with three significant digits, scientific where that is shorter.
pub fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if !value.is_finite() {
        return if value.is_nan() {
            "NaN".to_owned()
        } else {
            if value > 0.0 { "inf" } else { "-inf" }.to_owned()
        };
    }
    let magnitude = value.abs();
    if (0.001..1000.0).contains(&magnitude) {
        let digits = if magnitude >= 100.0 {
            0
        } else if magnitude >= 10.0 {
            1
        } else if magnitude >= 1.0 {
            2
        } else if magnitude >= 0.1 {
            3
        } else {
            4
        };
        format!("{value:.digits$}")
    } else {
        format!("{value:.2e}")
    }
}

/// A value of a tensor, with enough digits to tell f32 neighbours apart.
pub fn value(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return number(value);
    }
    if (0.0001..1e6).contains(&value.abs()) { format!("{value:.8}") } else { format!("{value:.7e}") }
}

/// Bytes in binary units.
pub fn bytes(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib < 1024.0 { format!("{mib:.0} MiB") } else { format!("{:.1} GiB", mib / 1024.0) }
}

/// Bytes in the largest unit that keeps at least one digit before the point.
pub fn bytes_exact(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} B"),
        10_000..=10_485_759 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => self::bytes(bytes),
    }
}

/// Seconds in a readable unit.
pub fn seconds(seconds: f64) -> String {
    if seconds < 0.001 {
        format!("{:.0} µs", seconds * 1e6)
    } else if seconds < 1.0 {
        format!("{:.1} ms", seconds * 1e3)
    } else {
        format!("{seconds:.2} s")
    }
}

/// Deviation beside its band: `12.4 floor (≤ 3, fails > 6)`.
pub fn deviation(finding: &Finding) -> String {
    match (&finding.deviation, &finding.band) {
        (Some(deviation), Some(band)) => {
            let unit = match band.unit.as_str() {
                "floor" => "× floor",
                "ulp" => "ulp",
                "samples" => "samples",
                _ => "",
            };
            format!(
                "{} {unit} (within {}, outside above {})",
                number(*deviation),
                number(band.pass),
                number(band.fail)
            )
        }
        (Some(deviation), None) => number(*deviation),
        _ => String::new(),
    }
}

/// Engine with version, and what stands in for its device.
pub fn engine(target: &TargetSummary) -> String {
    if target.emulated { format!("{} (emulated device)", target.engine) } else { target.engine.clone() }
}

/// Where its tensors were, or why there are none.
pub fn place(target: &TargetSummary) -> String {
    match target.status {
        TargetStatus::Absent | TargetStatus::Died => target.status.name().to_owned(),
        TargetStatus::Ran | TargetStatus::Reused => {
            let devices = target.devices.join("+");
            if target.emulated { format!("{devices} emulated") } else { devices }
        }
    }
}

/// Three answers about a device, and its kernels.
pub fn device_answers(device: &DeviceSummary) -> String {
    let answer = |yes: bool, word: &str| format!("{}{word}", if yes { "" } else { "not " });
    let verified = device.verified.map_or_else(|| "not asked".to_owned(), |yes| answer(yes, "verified"));
    let mut text =
        format!("{}, {}, {verified}", answer(device.built, "built"), answer(device.available, "available"));
    if let Some(kernels) = device.kernels {
        text = format!("{text}, {kernels} kernels a pass");
    }
    text
}

/// Where the operators ran, in one line.
pub fn placement_line(placement: &Placement) -> String {
    let on: Vec<String> = placement.operators.iter().map(|(device, n)| format!("{n} on {device}")).collect();
    let share: f64 = placement.fallbacks.iter().map(|f| f.share).sum();
    let left = match placement.fallbacks.len() {
        0 => "none left the device".to_owned(),
        n => format!("{n} places where work left it, {:.1} % of the time", 100.0 * share.clamp(0.0, 1.0)),
    };
    format!("operators: {}; {left}", on.join(", "))
}

/// Non-zero counts in words, `within` always.
pub fn counts(counts: &crate::verdict::Counts) -> String {
    Verdict::ALL
        .into_iter()
        .rev()
        .filter(|v| *v == Verdict::Within || counts.get(*v) > 0)
        .map(|v| format!("{} {}", counts.get(v), v.name()))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let cases = [
            (0.0, "0"),
            (1.0, "1.00"),
            (12.345, "12.3"),
            (0.01234, "0.0123"),
            (123_456.0, "1.23e5"),
            (1.5e-9, "1.50e-9"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }
}
