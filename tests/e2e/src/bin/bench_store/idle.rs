//! Cost of a control plane while nothing happens, and waiting until nothing does.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use anyhow::Context;

use crate::{Filled, WINDOW};

/// Time without any use of CPU after which a process is at rest.
const REST: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(120);

pub struct Idle {
    pub over: Duration,
    pub cpu_seconds: f64,
    pub resident_mib: f64,
}

/// Waits until no control plane has anything left to do with what was written to it.
pub fn wait_for_rest(all: &[Filled]) -> anyhow::Result<()> {
    let used =
        || -> anyhow::Result<f64> { all.iter().map(|filled| cpu_seconds(filled.control_plane.pid())).sum() };
    let begun = Instant::now();
    let mut last = used()?;
    let mut since = Instant::now();
    while since.elapsed() < REST {
        anyhow::ensure!(begun.elapsed() < PATIENCE, "the control planes are still busy after {PATIENCE:?}");
        thread::sleep(Duration::from_millis(50));
        let now = used()?;
        if now > last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(())
}

/// Measures a process while nothing happens.
pub fn cost(pid: u32) -> anyhow::Result<Idle> {
    let over = 2 * WINDOW;
    let before = cpu_seconds(pid)?;
    thread::sleep(over);
    let cpu_seconds = cpu_seconds(pid)? - before;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = resident.trim().trim_end_matches(" kB").parse()?;
    Ok(Idle { over, cpu_seconds, resident_mib: kib / 1024.0 })
}

fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<f64> = after_name.split_whitespace().skip(11).take(2).flat_map(str::parse).collect();
    // Linux counts these in hundredths of a second on every machine it runs on.
    Ok(fields.iter().sum::<f64>() / 100.0)
}
