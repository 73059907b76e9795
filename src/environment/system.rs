//! Questions to the operating system, answered from files and system calls that need no
//! rights. An answer that cannot be had is empty, never an error.

use std::path::Path;

/// Release of the system.
pub(super) fn os_version() -> String {
    if cfg!(target_os = "macos") {
        return sysctl("kern.osproductversion").map_or_else(String::new, |v| format!("macOS {v}"));
    }
    let text = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .map(|value| value.trim_matches('"').to_owned())
        .unwrap_or_default()
}

/// Release of the kernel.
pub(super) fn kernel() -> String {
    first_line("/proc/sys/kernel/osrelease").or_else(|| sysctl("kern.osrelease")).unwrap_or_default()
}

/// Name of the machine.
pub(super) fn host_name() -> String {
    first_line("/proc/sys/kernel/hostname")
        .or_else(|| sysctl("kern.hostname"))
        .or_else(|| std::env::var("HOSTNAME").ok())
        .unwrap_or_default()
}

/// Model of the processor.
pub(super) fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    field(&text, "model name")
        .or_else(|| field(&text, "Hardware"))
        .or_else(|| sysctl("machdep.cpu.brand_string"))
        .unwrap_or_default()
}

/// Instruction sets by which numeric libraries choose kernels, as the processor has them.
pub(super) fn cpu_features() -> Vec<String> {
    #[cfg(target_arch = "x86_64")]
    let features = [
        ("sse4.1", is_x86_feature_detected!("sse4.1")),
        ("avx", is_x86_feature_detected!("avx")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("f16c", is_x86_feature_detected!("f16c")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512fp16", is_x86_feature_detected!("avx512fp16")),
        ("avx512bf16", is_x86_feature_detected!("avx512bf16")),
    ];
    #[cfg(target_arch = "aarch64")]
    let features = [
        ("neon", std::arch::is_aarch64_feature_detected!("neon")),
        ("fp16", std::arch::is_aarch64_feature_detected!("fp16")),
        ("bf16", std::arch::is_aarch64_feature_detected!("bf16")),
        ("sve", std::arch::is_aarch64_feature_detected!("sve")),
    ];
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let features: [(&str, bool); 0] = [];
    features.iter().filter(|(_, there)| *there).map(|(name, _)| (*name).to_owned()).collect()
}

/// Memory of the machine in bytes.
pub(super) fn memory_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = field(&text, "MemTotal").and_then(|v| v.split_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib * 1024).or_else(|| sysctl("hw.memsize")?.parse().ok()).unwrap_or(0)
}

/// Memory in bytes that can be taken without pushing others out; `None` if the system does
/// not tell.
#[must_use]
pub fn free_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib = field(&text, "MemAvailable")?.split_whitespace().next()?.parse::<u64>().ok()?;
    Some(kib * 1024)
}

/// Whether this process is translated from another instruction set.
pub(super) fn translated() -> Option<bool> {
    if cfg!(target_os = "macos") {
        // The key does not exist on Intel machines: there nothing is translated.
        return Some(sysctl("sysctl.proc_translated").is_some_and(|v| v == "1"));
    }
    cfg!(target_os = "linux").then_some(false)
}

/// Commit of the git work tree that holds `dir`, read from its files.
pub(super) fn git_commit(dir: &Path) -> Option<String> {
    let dot_git = dir.ancestors().map(|d| d.join(".git")).find(|p| p.exists())?;
    let git_dir = if dot_git.is_file() {
        // A linked work tree: the file names the directory.
        let text = std::fs::read_to_string(&dot_git).ok()?;
        dot_git.parent()?.join(text.strip_prefix("gitdir:")?.trim())
    } else {
        dot_git
    };
    let head = first_line(git_dir.join("HEAD"))?;
    let commit = match head.strip_prefix("ref:") {
        None => head,
        Some(reference) => {
            let reference = reference.trim();
            let common = first_line(git_dir.join("commondir"))
                .map_or_else(|| git_dir.clone(), |common| git_dir.join(common));
            first_line(git_dir.join(reference))
                .or_else(|| first_line(common.join(reference)))
                .or_else(|| packed(&common.join("packed-refs"), reference))?
        }
    };
    (commit.len() >= 40 && commit.bytes().all(|b| b.is_ascii_hexdigit())).then_some(commit)
}

fn packed(file: &Path, reference: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| {
        let (commit, name) = line.split_once(' ')?;
        (name == reference).then(|| commit.to_owned())
    })
}

fn first_line(path: impl AsRef<Path>) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().next().map(|line| line.trim().to_owned())
}

/// Value of a `key : value` line.
fn field(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    })
}

/// A value of macOS's `sysctl`, asked of the system's own program: its library call would
/// be the only unsafe code of this module. `None` elsewhere.
fn sysctl(key: &str) -> Option<String> {
    if !cfg!(target_os = "macos") {
        return None;
    }
    let output = std::process::Command::new("/usr/sbin/sysctl").args(["-n", key]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_found_through_loose_and_packed_references() {
        let dir = tempfile::tempdir().unwrap();
        let git = dir.path().join(".git");
        std::fs::create_dir_all(git.join("refs/heads")).unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        let (loose, old) = ("0123456789012345678901234567890123456789", "f".repeat(40));
        std::fs::write(git.join("packed-refs"), format!("# x\n{old} refs/heads/main\n")).unwrap();
        assert_eq!(git_commit(&dir.path().join("a/b")), Some(old));
        std::fs::write(git.join("refs/heads/main"), format!("{loose}\n")).unwrap();
        assert_eq!(git_commit(&dir.path().join("a/b")).as_deref(), Some(loose));
    }

    #[test]
    fn damaged_git_files_give_no_commit() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join(".git")).unwrap();
        std::fs::write(dir.path().join(".git/HEAD"), "nonsense").unwrap();
        assert_eq!(git_commit(dir.path()), None);
    }

    #[test]
    fn this_machine_answers() {
        assert!(memory_bytes() > 0);
        assert!(!kernel().is_empty());
    }
}
