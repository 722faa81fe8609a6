//! Cost of a process, as the kernel counts it.

use std::{collections::HashMap, fs, time::Duration};

use anyhow::Context;
use serde::Serialize;

/// Resources that a process has used so far.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Usage {
    /// On any processor, in user space and in the kernel.
    pub cpu: Duration,
    /// Bytes of memory now (`VmRSS`), and at most since the peak was reset (`VmHWM`).
    pub memory: u64,
    pub peak: u64,
}

/// Adds up the processor time of all threads of a process.
///
/// `/proc/PID/task/*/schedstat` is exact to the nanosecond but forgets threads that have ended;
/// `/proc/PID/stat` remembers them in steps of 10 ms. The sum of the first is used, and lifted to the second
/// when it falls behind by more than the second's resolution.
#[derive(Debug)]
pub struct Meter {
    pid: u32,
    threads: HashMap<String, u64>,
    /// Of threads that have ended, in nanoseconds.
    ended: u64,
}

const RESOLUTION: u64 = 50_000_000;
const TICK: u64 = 10_000_000;

impl Meter {
    pub fn new(pid: u32) -> Meter {
        Meter { pid, threads: HashMap::new(), ended: 0 }
    }

    pub fn read(&mut self) -> anyhow::Result<Usage> {
        let reading = || format!("reading what process {} costs", self.pid);
        let mut threads = HashMap::new();
        for entry in fs::read_dir(format!("/proc/{}/task", self.pid)).with_context(reading)? {
            let entry = entry.with_context(reading)?;
            // A thread may end between listing and reading.
            let Ok(text) = fs::read_to_string(entry.path().join("schedstat")) else { continue };
            let on_cpu = text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0);
            threads.insert(entry.file_name().to_string_lossy().into_owned(), on_cpu);
        }
        let gone = self.threads.iter().filter(|(thread, _)| !threads.contains_key(*thread));
        self.ended += gone.map(|(_, on_cpu)| on_cpu).sum::<u64>();
        let counted = self.ended + threads.values().sum::<u64>();
        self.threads = threads;
        let ticked = self.ticks().with_context(|| format!("reading /proc/{}/stat", self.pid))? * TICK;
        if ticked > counted + RESOLUTION {
            self.ended += ticked - counted;
        }
        let (memory, peak) = self.memory()?;
        Ok(Usage { cpu: Duration::from_nanos(counted.max(ticked.saturating_sub(RESOLUTION))), memory, peak })
    }

    /// From here on the peak is counted anew.
    pub fn reset_peak(&self) -> anyhow::Result<()> {
        let path = format!("/proc/{}/clear_refs", self.pid);
        fs::write(&path, "5").with_context(|| format!("resetting the peak of memory in {path}"))
    }

    fn ticks(&self) -> anyhow::Result<u64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
        // The program's name stands in parentheses and may hold anything.
        let (_, fields) = stat.rsplit_once(") ").context("no name")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        let field =
            |index: usize| -> anyhow::Result<u64> { Ok(fields.get(index).context("too short")?.parse()?) };
        Ok(field(11)? + field(12)?)
    }

    fn memory(&self) -> anyhow::Result<(u64, u64)> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let kilobytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0)
        };
        Ok((kilobytes("VmRSS:") * 1024, kilobytes("VmHWM:") * 1024))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_also_when_its_thread_has_ended() {
        let mut meter = Meter::new(std::process::id());
        let before = meter.read().unwrap();
        let busy = || {
            let usage = |meter: &mut Meter| meter.read().unwrap().cpu;
            let mut own = Meter::new(std::process::id());
            let start = usage(&mut own);
            while usage(&mut own) < start + Duration::from_millis(300) {}
        };
        std::thread::spawn(busy).join().unwrap();
        let after = meter.read().unwrap();
        assert!(after.cpu >= before.cpu + Duration::from_millis(200), "{before:?} {after:?}");
        assert!(after.memory > 0 && after.peak >= after.memory / 2);
    }
}
