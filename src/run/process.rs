//! System calls about processes that the standard library does not have: the only unsafe
//! code of this module.
//!
//! `wait4` gives the times and the peak memory of a child beside its status, signals are
//! sent to a child by its number, and a handler notes SIGINT and SIGTERM.

#![expect(
    unsafe_code,
    reason = "wait4, kill, sigaction and raise exist in libc only; each call is justified"
)]

use std::sync::atomic::{AtomicI32, Ordering};

use serde::{Deserialize, Serialize};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum Ended {
    /// By itself.
    Exit {
        /// Exit code.
        code: i32,
    },
    /// By a signal.
    Signal {
        /// Its number.
        number: i32,
    },
    /// By us, because it said nothing for too long.
    TimedOut {
        /// Seconds of silence.
        after_s: u64,
    },
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exit { code } => write!(f, "exit code {code}"),
            Self::Signal { number } => match signal_name(*number) {
                Some(name) => write!(f, "signal {name}"),
                None => write!(f, "signal {number}"),
            },
            Self::TimedOut { after_s } => write!(f, "killed after {after_s} s without progress"),
        }
    }
}

/// What a process used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Wall time from start to end, seconds.
    pub wall_s: f64,
    /// Processor time in user mode, seconds.
    pub user_s: f64,
    /// Processor time in the kernel, seconds.
    pub system_s: f64,
    /// Highest resident memory, bytes. As the system reports it to the parent, which on
    /// Linux is never less than what the *parent* held when it started the child; the
    /// child's own figure, where it lived to give it, replaces it.
    pub peak_bytes: u64,
}

/// Name of a signal by its number.
#[must_use]
pub fn signal_name(number: i32) -> Option<&'static str> {
    Some(match number {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGSYS => "SIGSYS",
        _ => return None,
    })
}

/// Status and usage of a child that has ended; `None` while it runs. After `Some` the
/// number is free for another process: neither wait for it nor signal it again.
///
/// # Errors
/// If there is no such child.
pub(super) fn try_wait(pid: u32) -> std::io::Result<Option<(Ended, Usage)>> {
    let pid = libc::pid_t::try_from(pid).map_err(std::io::Error::other)?;
    let mut status: libc::c_int = 0;
    // SAFETY: `rusage` is a struct of integers, for which all zeros is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live, writable values of the types that wait4 fills in.
    let got = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage) };
    if got == 0 {
        return Ok(None);
    }
    if got < 0 {
        let error = std::io::Error::last_os_error();
        return if error.kind() == std::io::ErrorKind::Interrupted { Ok(None) } else { Err(error) };
    }
    let ended = if libc::WIFSIGNALED(status) {
        Ended::Signal { number: libc::WTERMSIG(status) }
    } else {
        Ended::Exit { code: libc::WEXITSTATUS(status) }
    };
    Ok(Some((ended, usage_of(&usage))))
}

fn usage_of(usage: &libc::rusage) -> Usage {
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
    // Linux counts in KiB, macOS in bytes.
    let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
    Usage {
        wall_s: 0.0,
        user_s: seconds(usage.ru_utime),
        system_s: seconds(usage.ru_stime),
        peak_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0) * unit,
    }
}

/// Highest resident memory of this process so far, in bytes.
#[must_use]
pub fn own_peak_bytes() -> Option<u64> {
    if cfg!(target_os = "linux") {
        // Not getrusage: its figure survives exec and is that of the parent, if larger.
        let text = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        return line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024);
    }
    // SAFETY: as in `try_wait`.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live, writable value.
    let got = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    (got == 0).then(|| usage_of(&usage).peak_bytes)
}

/// Limits the memory that this process may map; what is mapped already counts.
///
/// # Errors
/// If the system refuses.
pub(super) fn limit_memory(bytes: u64) -> std::io::Result<()> {
    let limit = libc::rlim_t::try_from(bytes).map_err(std::io::Error::other)?;
    let limits = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: the pointer is to a live value of the type that setrlimit reads.
    let got = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limits) };
    if got == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Sends a signal to a child that has not been waited for.
pub(super) fn signal(pid: u32, number: i32) {
    if let Ok(pid) = libc::pid_t::try_from(pid)
        && pid > 0
    {
        // SAFETY: no memory is involved; the number is that of a child of ours that has not
        // been reaped, so it cannot belong to anybody else.
        unsafe { libc::kill(pid, number) };
    }
}

/// Sends a signal to this process: planted faults die as real ones do.
pub(super) fn raise(number: i32) {
    // SAFETY: no memory is involved.
    unsafe { libc::raise(number) };
}

static CAUGHT: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(number: libc::c_int) {
    // The only thing done in the handler: an atomic store, which is async-signal-safe.
    CAUGHT.store(number, Ordering::SeqCst);
}

/// SIGINT and SIGTERM are noted instead of ending the process, until dropped.
#[derive(Debug)]
pub(super) struct SignalGuard {
    previous: Vec<(libc::c_int, libc::sighandler_t)>,
}

impl SignalGuard {
    pub(super) fn install() -> Self {
        CAUGHT.store(0, Ordering::SeqCst);
        let handler = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
        let previous = [libc::SIGINT, libc::SIGTERM]
            .into_iter()
            // SAFETY: the handler is a function of the required type that does nothing but
            // an atomic store.
            .map(|number| (number, unsafe { libc::signal(number, handler) }))
            .collect();
        Self { previous }
    }

    /// The signal that came, if any.
    pub(super) fn caught() -> Option<i32> {
        match CAUGHT.load(Ordering::SeqCst) {
            0 => None,
            number => Some(number),
        }
    }
}

impl Drop for SignalGuard {
    fn drop(&mut self) {
        for (number, handler) in &self.previous {
            if *handler != libc::SIG_ERR {
                // SAFETY: the handler is the one that was there before.
                unsafe { libc::signal(*number, *handler) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_peak() {
        assert!(own_peak_bytes().unwrap() > 1 << 20);
    }

    #[test]
    fn ends_are_described_by_name() {
        assert_eq!(Ended::Signal { number: libc::SIGKILL }.to_string(), "signal SIGKILL");
        assert_eq!(Ended::Signal { number: 63 }.to_string(), "signal 63");
        assert_eq!(Ended::Exit { code: 3 }.to_string(), "exit code 3");
    }

    #[test]
    fn a_process_that_is_no_child_cannot_be_waited_for() {
        assert!(try_wait(1).is_err());
    }
}
