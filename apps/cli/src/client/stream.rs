//! Server-sent events.

use std::io::{self, BufRead, BufReader, Read};

use ureq::http::header::{ACCEPT, HeaderName};

use super::{ADDRESS, ApiClient, redirect};
use crate::failure::{Failure, Result};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// A longer line is not one of a control plane.
const LONGEST_LINE: u64 = 256 * 1024;

/// A message of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StreamMessage {
    /// Empty for an event.
    pub r#type: String,
    pub data: String,
}

/// Messages as they arrive.
pub struct MessageStream {
    reader: BufReader<Box<dyn Read>>,
    /// Identifier after which the stream can be resumed.
    pub last_id: Option<String>,
}

impl MessageStream {
    fn of(reader: Box<dyn Read>, last_id: Option<String>) -> MessageStream {
        MessageStream { reader: BufReader::new(reader), last_id }
    }

    /// Waits for the next message that has data; `None` at the end.
    pub fn next(&mut self) -> io::Result<Option<StreamMessage>> {
        let mut message = StreamMessage::default();
        while let Some(line) = self.line()? {
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "" if line.is_empty() && message.data.is_empty() => message = StreamMessage::default(),
                "" if line.is_empty() => return Ok(Some(message)),
                "id" => self.last_id = Some(value.to_owned()),
                "event" => value.clone_into(&mut message.r#type),
                "data" => message.data.push_str(value),
                _ => {}
            }
            if message.data.len() as u64 > LONGEST_LINE {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
        Ok(None)
    }

    fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = String::new();
        let read = self.reader.by_ref().take(LONGEST_LINE).read_line(&mut line)?;
        if read as u64 == LONGEST_LINE {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // What follows the last line break was cut off.
        Ok(line.strip_suffix('\n').map(|line| line.trim_end_matches('\r').to_owned()))
    }
}

impl ApiClient {
    /// Opens a stream, after an identifier if there is one. It lasts no longer than a request may.
    pub fn stream(&self, path: &str, last_id: Option<&str>, attempted: &str) -> Result<MessageStream> {
        let url = self.url(path);
        let request = self.with_headers(self.agent.get(&url)).header(ACCEPT, "text/event-stream");
        let request = last_id.into_iter().fold(request, |request, id| request.header(LAST_EVENT_ID, id));
        match request.call() {
            Ok(response) if redirect::is_redirect(&response) => Err(Failure::failed(format!(
                "{attempted}: GET {url} was sent on to {}\nhint: {ADDRESS}",
                redirect::location(&response)
            ))),
            Ok(response) if response.status().is_success() => {
                let last_id = last_id.map(str::to_owned);
                Ok(MessageStream::of(Box::new(response.into_body().into_reader()), last_id))
            }
            refused => {
                let status = self.answer("GET", &url, refused)?.accepted(attempted)?.status;
                Err(Failure::failed(format!("{attempted}: the control plane answered {status}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(text: &str) -> MessageStream {
        MessageStream::of(Box::new(io::Cursor::new(text.to_owned())), None)
    }

    #[test]
    fn messages_are_read_with_their_ids_and_comments_are_not() {
        let mut stream = stream(
            "retry: 1000\nid: a-1\n\n: here\nid: a-2\n\nid: a-3\ndata: {}\n\nevent: gap\ndata:x\r\n\r\n",
        );
        assert_eq!(
            stream.next().unwrap().unwrap(),
            StreamMessage { r#type: String::new(), data: "{}".into() }
        );
        assert_eq!(stream.last_id.as_deref(), Some("a-3"));
        assert_eq!(stream.next().unwrap().unwrap(), StreamMessage { r#type: "gap".into(), data: "x".into() });
        assert_eq!(stream.next().unwrap(), None);
    }

    #[test]
    fn a_message_that_is_cut_off_is_none_and_an_endless_one_is_an_error() {
        assert_eq!(stream("data: {\"a\":").next().unwrap(), None);
        assert_eq!(stream("data: {}\n").next().unwrap(), None);
        let endless = "x".repeat(usize::try_from(LONGEST_LINE).unwrap() + 10);
        assert!(stream(&endless).next().is_err());
        assert!(stream(&"data: 0123456789\n".repeat(100_000)).next().is_err());
    }
}
