//! Redirects: reads follow them, without sending credentials to another host; writes never do, because it would
//! not be known what was written where.

use ureq::http::{Response, Uri, header::LOCATION};

/// A chain of more is a circle.
const MOST: usize = 5;

/// Next step after an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// It is the answer.
    Here,
    /// To this URL; `trusted` when that is the same server.
    Follow { url: String, trusted: bool },
    /// Elsewhere, where this client does not go; the text says where and why.
    Refused(String),
}

pub fn is_redirect<B>(response: &Response<B>) -> bool {
    matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// The address an answer names.
pub fn location<B>(response: &Response<B>) -> String {
    let named = response.headers().get(LOCATION).map(|value| String::from_utf8_lossy(value.as_bytes()));
    named.map_or_else(|| "an address it does not name".to_owned(), std::borrow::Cow::into_owned)
}

/// Judges the answer to a GET of `url`, which `followed` answers before it led to.
pub fn judge<B>(response: &Response<B>, url: &str, followed: usize) -> Next {
    if !is_redirect(response) {
        return Next::Here;
    }
    let to = location(response);
    if followed == MOST {
        return Next::Refused(format!("it was sent on more than {MOST} times, at last to {to}"));
    }
    let target = absolute(url, &to).and_then(|target| Some((target.parse::<Uri>().ok()?, target)));
    let (Ok(from), Some((next, target))) = (url.parse::<Uri>(), target) else {
        return Next::Refused(format!("it was sent to {to}, which is not an address"));
    };
    if from.scheme() != next.scheme() {
        return Next::Refused(format!(
            "it was redirected to {to}, which uses another scheme (http or https)"
        ));
    }
    Next::Follow { trusted: from.authority() == next.authority(), url: target }
}

fn absolute(base: &str, location: &str) -> Option<String> {
    if location.contains("://") {
        return Some(location.to_owned());
    }
    let path = location.strip_prefix('/').filter(|rest| !rest.starts_with('/'))?;
    let base: Uri = base.parse().ok()?;
    Some(format!("{}://{}/{path}", base.scheme_str()?, base.authority()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_follows_where_the_way_stays_the_same() {
        let judged = |location: &str| {
            let answer = Response::builder().status(307).header("location", location).body(()).unwrap();
            judge(&answer, "http://cp:5681/meshes", 0)
        };
        let follow = |url: &str, trusted| Next::Follow { url: url.to_owned(), trusted };
        assert_eq!(judged("/api/meshes"), follow("http://cp:5681/api/meshes", true));
        assert_eq!(judged("http://cp:5681/x"), follow("http://cp:5681/x", true));
        assert_eq!(judged("http://cp:80/x"), follow("http://cp:80/x", false));
        assert_eq!(judged("http://other:5681/x"), follow("http://other:5681/x", false));
        for refused in ["https://cp:5681/x", "ftp://cp:5681/x", "//other/x", "x", ""] {
            assert!(matches!(judged(refused), Next::Refused(_)), "{refused}");
        }
    }
}
