//! Facts of the operating system about this process, as the metrics every client library of Prometheus
//! offers.

use std::{
    fmt, fs,
    time::{Duration, SystemTime},
};

use nix::sys::{
    resource::{Resource, UsageWho, getrlimit, getrusage},
    time::TimeValLike,
};
use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::MetricType,
};

use crate::metrics::Metrics;

/// Ticks of the clock in which Linux counts times in `/proc`. It is the same on every architecture we build for.
const TICKS_PER_SECOND: u32 = 100;

/// Registers `process_…`.
pub fn register(metrics: &Metrics) {
    let add = |name: &str, help: &str, what: ProcessMetric| {
        metrics.register(name, help, what);
    };
    add("process_cpu_seconds", "Processor time used, user and system", ProcessMetric::Cpu);
    add("process_resident_memory_bytes", "Memory in use", ProcessMetric::Resident);
    add("process_virtual_memory_bytes", "Address space in use", ProcessMetric::Virtual);
    add("process_open_fds", "Open files and sockets", ProcessMetric::OpenFiles);
    add("process_max_fds", "Maximum open files and sockets", ProcessMetric::MaxFiles);
    let started = started().unwrap_or_default();
    add(
        "process_start_time_seconds",
        "Start of the process, in seconds since 1970",
        ProcessMetric::Started(started),
    );
}

/// A value that is read when `/metrics` is read.
#[derive(Debug, Clone, Copy)]
enum ProcessMetric {
    Cpu,
    Resident,
    Virtual,
    OpenFiles,
    MaxFiles,
    Started(f64),
}

impl EncodeMetric for ProcessMetric {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        // A value that the system does not tell is left out.
        match self {
            ProcessMetric::Cpu => {
                cpu().map_or(Ok(()), |seconds| encoder.encode_counter::<NoLabelSet, _, u64>(&seconds, None))
            }
            ProcessMetric::Resident => memory("VmRSS:").map_or(Ok(()), |bytes| encoder.encode_gauge(&bytes)),
            ProcessMetric::Virtual => memory("VmSize:").map_or(Ok(()), |bytes| encoder.encode_gauge(&bytes)),
            ProcessMetric::OpenFiles => open_files().map_or(Ok(()), |count| encoder.encode_gauge(&count)),
            ProcessMetric::MaxFiles => max_files().map_or(Ok(()), |count| encoder.encode_gauge(&count)),
            ProcessMetric::Started(seconds) => encoder.encode_gauge(seconds),
        }
    }

    fn metric_type(&self) -> MetricType {
        match self {
            ProcessMetric::Cpu => MetricType::Counter,
            _ => MetricType::Gauge,
        }
    }
}

fn cpu() -> Option<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Some(Duration::from_micros(u64::try_from(micros).ok()?).as_secs_f64())
}

/// A line of `/proc/self/status`, which counts in KiB.
fn memory(line: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let value = status.lines().find_map(|found| found.strip_prefix(line))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

fn open_files() -> Option<u64> {
    // The folder itself is open while it is listed.
    let listed = fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1);
    u64::try_from(listed).ok()
}

fn max_files() -> Option<u64> {
    getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(soft, _)| soft)
}

fn started() -> Option<f64> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs_f64();
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    // The name of the program comes before, in parentheses, and may hold anything. Of the fields after it the
    // twentieth is when the process started, counted from the start of the machine.
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let ticks: f64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    Some(now - uptime + ticks / f64::from(TICKS_PER_SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str, name: &str) -> f64 {
        let line =
            text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        line.trim().parse().unwrap()
    }

    #[test]
    fn the_process_tells_what_it_uses() {
        let metrics = Metrics::default();
        register(&metrics);
        let before = metrics.encode();
        let files: Vec<fs::File> = (0..10).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        let after = metrics.encode();
        // Other tests open and close files at the same time.
        assert!(value(&after, "process_open_fds ") >= 10.0, "{after}");
        drop(files);
        assert!(value(&after, "process_max_fds ") >= value(&after, "process_open_fds "), "{after}");
        assert!(value(&after, "process_resident_memory_bytes ") > 1_000_000.0, "{after}");
        assert!(
            value(&after, "process_virtual_memory_bytes ") >= value(&after, "process_resident_memory_bytes ")
        );
        assert!(value(&after, "process_cpu_seconds_total ") >= value(&before, "process_cpu_seconds_total "));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
        let age = now - value(&after, "process_start_time_seconds ");
        assert!((-2.0..86_400.0).contains(&age), "{age}");
    }
}
