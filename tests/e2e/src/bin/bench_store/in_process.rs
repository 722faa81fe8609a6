//! Results of `cargo bench -p store`.

use std::{fs, path::Path};

use anyhow::Context;
use serde_json::Value;

use crate::report::Row;

pub struct InProcess {
    pub reads: Vec<Row>,
    /// Criterion's medians in nanoseconds.
    pub commits: Vec<(String, f64)>,
}

pub fn read(repository: &Path) -> anyhow::Result<InProcess> {
    let reads: Value = json(&repository.join("target/tmp/store-reads.json"))?;
    let read = |row: &Value| {
        let cells = row["medians"].as_array()?.iter();
        let medians = cells.map(|cell| Some((cell[0].as_u64()?, cell[1].as_f64()?)));
        Some(Row { what: row["what"].as_str()?.to_owned(), medians: medians.collect::<Option<_>>()? })
    };
    let reads: Option<Vec<Row>> = reads.as_array().and_then(|rows| rows.iter().map(read).collect());
    let mut commits = Vec::new();
    for entry in fs::read_dir(repository.join("target/criterion")).context("reading criterion's results")? {
        let path = entry?.path();
        let estimates = path.join("new/estimates.json");
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(what) = name.strip_prefix("commit_").filter(|_| estimates.is_file()) {
            let median = json(&estimates)?["median"]["point_estimate"].as_f64().context("no median")?;
            commits.push((what.to_owned(), median));
        }
    }
    commits.sort_by(|a, b| b.1.total_cmp(&a.1));
    Ok(InProcess { reads: reads.context("store-reads.json is not what the benchmark writes")?, commits })
}

fn json(path: &Path) -> anyhow::Result<Value> {
    let text = fs::read_to_string(path)
        .with_context(|| format!("reading {}: run `cargo bench -p store`", path.display()))?;
    Ok(serde_json::from_str(&text)?)
}
