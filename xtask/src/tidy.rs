//! What a machine can keep in order: layers, file lengths, links, words that must not appear.

mod layers;
mod text;

use anyhow::bail;

/// Reports everything that is out of order, then fails if anything was.
#[allow(clippy::print_stderr, reason = "findings for the user")]
pub fn check() -> anyhow::Result<()> {
    let mut findings = layers::check()?;
    findings.extend(text::check()?);
    for finding in &findings {
        eprintln!("tidy: {finding}");
    }
    if !findings.is_empty() {
        bail!("{} thing(s) out of order", findings.len());
    }
    eprintln!("── tidy");
    Ok(())
}
