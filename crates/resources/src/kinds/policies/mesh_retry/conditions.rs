//! Conditions on which a failed request is retried.

use crate::kinds::open_enum::open_enum;

open_enum! {
    /// Condition of a retry. Status codes are no words of their own: they are in `Other`.
    HttpRetryOn {
        All5xx = "5xx",
        GatewayError = "GatewayError",
        Reset = "Reset",
        Retriable4xx = "Retriable4xx",
        ConnectFailure = "ConnectFailure",
        EnvoyRatelimited = "EnvoyRatelimited",
        RefusedStream = "RefusedStream",
        Http3PostConnectFailure = "Http3PostConnectFailure",
        HttpMethodConnect = "HttpMethodConnect",
        HttpMethodDelete = "HttpMethodDelete",
        HttpMethodGet = "HttpMethodGet",
        HttpMethodHead = "HttpMethodHead",
        HttpMethodOptions = "HttpMethodOptions",
        HttpMethodPatch = "HttpMethodPatch",
        HttpMethodPost = "HttpMethodPost",
        HttpMethodPut = "HttpMethodPut",
        HttpMethodTrace = "HttpMethodTrace",
    }
}

open_enum! {
    /// The status of a gRPC call that is tried again.
    GrpcRetryOn {
        Canceled = "Canceled",
        DeadlineExceeded = "DeadlineExceeded",
        Internal = "Internal",
        ResourceExhausted = "ResourceExhausted",
        Unavailable = "Unavailable",
    }
}

impl HttpRetryOn {
    /// True for conditions, methods and status codes.
    pub(super) fn is_retriable(&self) -> bool {
        !matches!(self, HttpRetryOn::Other(_)) || self.status_code().is_some()
    }

    /// The status code, if it is one that HTTP gives a meaning.
    pub fn status_code(&self) -> Option<u32> {
        let HttpRetryOn::Other(word) = self else { return None };
        word.parse().ok().filter(|code| is_registered(*code))
    }

    /// The method, if it limits retries to one.
    pub fn method(&self) -> Option<String> {
        self.as_str().strip_prefix("HttpMethod").map(str::to_ascii_uppercase)
    }
}

/// The status codes that Go's `http.StatusText` knows, which Kuma asks.
fn is_registered(code: u32) -> bool {
    matches!(
        code,
        100..=103
            | 200..=208
            | 226
            | 300..=305
            | 307..=308
            | 400..=418
            | 421..=426
            | 428..=429
            | 431
            | 451
            | 500..=508
            | 510..=511
    )
}
