//! Reasons that fit into the trailers of a stream.

/// Longest reason of a stream's end: a peer that is sent longer trailers breaks off the connection, and with it every
/// stream on it. Percent-encoding makes three bytes of one at most.
pub const LONGEST_REASON: usize = 2048;

/// Cuts a reason that is too long, between characters: it may quote what a peer sent. `None` if it fits.
pub fn cut(reason: &str) -> Option<String> {
    if reason.len() <= LONGEST_REASON {
        return None;
    }
    let kept = (0..=LONGEST_REASON).rev().find_map(|end| reason.get(..end)).unwrap_or_default();
    Some(format!("{kept}… ({} bytes in all)", reason.len()))
}
