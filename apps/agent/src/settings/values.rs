//! Parsers for the values of flags and variables, in the spellings Kuma accepts.

use std::time::Duration;

use resources::duration::GoDuration;

/// The spellings Go's strconv knows, because environment variables were written for it.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

pub fn duration(text: &str) -> Result<Duration, String> {
    let duration: GoDuration = text.parse().map_err(|error| format!("{error}"))?;
    duration.to_std().ok_or_else(|| "a duration cannot be negative here".to_owned())
}

/// `http://…` or `https://…` with a host and nothing else.
pub fn url(text: &str) -> Result<http::Uri, String> {
    let url: http::Uri = text.parse().map_err(|error| format!("not a URL: {error}"))?;
    match url.scheme_str() {
        Some("http" | "https") if url.host().is_some() => Ok(url),
        _ => Err("expected a URL such as https://localhost:5678".to_owned()),
    }
}

/// The URL of a control plane, which proxies reach with TLS only.
pub fn control_plane(text: &str) -> Result<http::Uri, String> {
    let url = url(text)?;
    if url.scheme_str() == Some("https") {
        return Ok(url);
    }
    // The ports of the API and of plain HTTP are never meant.
    let port = url.port_u16().filter(|port| !matches!(port, 80 | 5681 | 5682)).unwrap_or(5678);
    let host = url.host().unwrap_or("localhost");
    Err(format!("the control plane's server for proxies speaks TLS only; write https://{host}:{port}"))
}

pub fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected key=value".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_in_the_spellings_kuma_accepts() {
        assert_eq!(boolean("T"), Ok(true));
        assert_eq!(boolean("0"), Ok(false));
        assert!(boolean("yes").is_err());
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert!(duration("-1s").unwrap_err().contains("negative"));
        assert!(duration("30").is_err());
        assert_eq!(url("https://[::1]:5678").unwrap().port_u16(), Some(5678));
        for wrong in ["localhost:5678", "ftp://x", "", "grpcs://cp:5678"] {
            assert!(url(wrong).is_err(), "{wrong}");
        }
        assert!(control_plane("https://cp.example:5678").is_ok());
        for (wrong, right) in [
            ("http://cp.example:5681", "https://cp.example:5678"),
            ("http://cp.example", "https://cp.example:5678"),
            ("http://[::1]:7777", "https://[::1]:7777"),
        ] {
            let said = control_plane(wrong).unwrap_err();
            assert!(said.ends_with(&format!("write {right}")), "{said}");
        }
        assert_eq!(pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(pair("a").is_err() && pair("=b").is_err());
    }
}
