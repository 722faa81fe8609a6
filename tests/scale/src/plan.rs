//! Measurements of `cargo xtask bench scale` when no cell is named.

use anyhow::Context;

use crate::{
    bench::workloads::BenchWorkload::{self, Toggle, W0, W1, W2, W3, W4, W5, W7, W8, W9},
    topology::Size,
};

/// One cell with its workloads.
#[derive(Debug, Clone)]
pub struct Cell {
    pub size: Size,
    pub workloads: Vec<BenchWorkload>,
}

/// Full meshes of three sizes; one change seen by as many proxies among few services and among many; many
/// proxies with few destinations each; many that come back at once.
const CELLS: &[(&str, &[BenchWorkload])] = &[
    (SMALL, &[W1, W0, W2, W3, W4, W5, W7, Toggle]),
    (MIDDLE, &[W1, W2, W3]),
    (LARGE, &[W1, W2, W3, W9]),
    (FEW_SERVICES, &[W1, W2, W3]),
    (MANY_SERVICES, &[W1, W2, W3]),
    (MANY_PROXIES, &[W1, W0]),
    (RECONNECTING, &[W1, W8]),
];

pub const SMALL: &str = "100x100";
pub const MIDDLE: &str = "300x300";
pub const LARGE: &str = "1000x1000";
pub const FEW_SERVICES: &str = "100x100d10";
pub const MANY_SERVICES: &str = "100x10000d10";
pub const MANY_PROXIES: &str = "10000x5000d50";
pub const RECONNECTING: &str = "5000x1000d20";

pub fn cells() -> anyhow::Result<Vec<Cell>> {
    let cell = |(size, workloads): &(&str, &[BenchWorkload])| {
        let size = size.parse().with_context(|| format!("the cell {size}"))?;
        Ok(Cell { size, workloads: workloads.to_vec() })
    };
    CELLS.iter().map(cell).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_planned_cell_can_be_read() {
        assert!(!super::cells().unwrap().is_empty());
    }
}
