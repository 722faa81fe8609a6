//! Order that a machine can check: layers, file lengths, links, pages of decisions, prose, names of tests and of
//! types, words that must not appear, types made of the OpenAPI document.

mod decisions;
mod layers;
mod prose;
mod reach;
mod test_names;
mod text;
mod type_names;

use anyhow::bail;

use crate::typescript;

/// Reports everything that is out of order, then fails if anything was.
#[allow(clippy::print_stderr, reason = "findings for the user")]
pub fn check() -> anyhow::Result<()> {
    let mut findings = layers::check()?;
    findings.extend(decisions::check()?);
    findings.extend(text::check()?);
    findings.extend(typescript::check()?);
    for finding in &findings {
        eprintln!("tidy: {finding}");
    }
    if !findings.is_empty() {
        bail!("{} thing(s) out of order", findings.len());
    }
    eprintln!("── tidy");
    Ok(())
}
