//! The message of a NACK, without the configuration that it quotes.
//!
//! Envoy writes the whole message that fails a check in front of the reason: private keys, should there be
//! any, and the names of other resources, which are not to blame. Only the reason goes further than this.

/// Start of Envoy's mark before a quotation; the rest of the mark varies.
const QUOTED: &str = "goo.gle/debug";
/// Limit in bytes of the NACK message kept with each resource.
const KEPT: usize = 4096;

/// The proxy's own words. What it quotes begins with a mark and ends before a line that starts with a
/// colon; Envoys that do not mark it are understood by its shape. Where nothing is said before, a whole
/// resource is quoted, and its name stands for it.
pub(crate) fn own(message: &str) -> String {
    let mut words = String::new();
    let mut quoting = false;
    for line in message.lines() {
        let reason = line.strip_prefix(": ");
        quoting &= reason.is_none();
        if quoting && words.is_empty() {
            words.push_str(name(line).unwrap_or_default());
        }
        if quoting || line.starts_with([' ', '}']) || line.ends_with('{') {
            continue;
        }
        let line = reason.unwrap_or(line);
        let said = line.split_once(QUOTED).map(|(said, _)| said);
        quoting = said.is_some();
        if !words.is_empty() {
            words.truncate(words.trim_end_matches([' ', ':']).len());
            words.push_str(if reason.is_some() { ": " } else { "\n" });
        }
        words.push_str(said.unwrap_or(line).trim_end());
    }
    words
}

/// The name of a resource, if the line tells it: not that of something in the resource, which is indented.
fn name(line: &str) -> Option<&str> {
    let value = line.strip_prefix("name: ").or_else(|| line.strip_prefix("cluster_name: "))?;
    value.strip_prefix('"')?.strip_suffix('"')
}

/// The beginning of a complaint: one about many resources is kept with each of them.
pub(crate) fn kept(message: &str) -> String {
    let end = (0..=KEPT.min(message.len())).rev().find(|end| message.is_char_boundary(*end));
    message[..end.unwrap_or_default()].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(message: &str, expect: &str) {
        assert_eq!(own(message), expect);
    }

    #[test]
    fn what_is_quoted_is_left_out_and_the_reasons_stay() {
        let quoted = "stat_prefix: \"x\"\ntls {\n  private_key {\n    inline_string: \"KEY\"\n  }\n}\n";
        check(
            &format!(
                "Error adding/updating listener(s) a: goo.gle/debugonly  \n{quoted}: Proto constraint validation failed (A: bad), \
                 b: goo.gle/debugstr \n{quoted}: Proto constraint validation failed (B: bad)"
            ),
            "Error adding/updating listener(s) a: Proto constraint validation failed (A: bad), \
             b: Proto constraint validation failed (B: bad)",
        );
        check(&format!("goo.gle/debugstr\n{quoted}: Proto constraint"), "Proto constraint");
        check(&format!("goo.gle/debugstr\nname: \"a\"\n{quoted}: Proto constraint"), "a: Proto constraint");
        check(&format!("cluster(s) a: goo.gle/debugproto \n{quoted}"), "cluster(s) a:");
        // As older Envoys do.
        check(
            "Proto constraint validation failed (A: bad): name: \"a\"\ntls {\n  key: \"KEY\"\n}\n",
            "Proto constraint validation failed (A: bad): name: \"a\"",
        );
        for words in ["", "cluster(s) a: bad timeout, c: bad too", "a: cannot bind\nb: cannot bind"] {
            check(words, words);
        }
    }

    #[test]
    fn of_a_long_complaint_the_beginning_is_kept() {
        assert_eq!(kept("short"), "short");
        assert_eq!(kept(&"x".repeat(2 * KEPT)).len(), KEPT);
        assert_eq!(kept(&format!("x{}", "ä".repeat(KEPT))).len(), KEPT - 1);
    }
}
