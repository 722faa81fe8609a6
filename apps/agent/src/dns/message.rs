//! DNS messages as far as this server reads and writes them. What resolvers answer is passed on byte by byte; only
//! its first lines are looked at.

use std::net::IpAddr;

use hickory_proto::{
    op::{Edns, Header, Message, OpCode, Query as Question, ResponseCode},
    rr::{DNSClass, RData, Record, RecordType},
    serialize::binary::{BinDecodable, BinDecoder},
};

use super::table::Addresses;

/// Bytes of what every message begins with.
const HEADER: usize = 12;
/// Bytes of an answer in one packet, unless the client takes more (RFC 1035).
const PLAIN: u16 = 512;
/// Bytes of a packet that no network takes apart.
const WHOLE: u16 = 1232;

const SERVFAIL: u8 = 2;
const FORMERR: u8 = 1;
const NOTIMP: u8 = 4;
const REFUSED: u8 = 5;

/// A question that can be answered.
#[derive(Debug)]
pub struct Query {
    message: Message,
    question: Question,
}

/// Reasons why a packet is no query.
#[derive(Debug, PartialEq, Eq)]
pub enum QueryError {
    /// It is an answer, or too short for one: no client waits for a response.
    Ignored,
    /// The sender gets an error.
    Answered(Vec<u8>),
}

impl Query {
    pub fn read(packet: &[u8]) -> Result<Query, QueryError> {
        let is_answer = |flags: &u8| flags & 0x80 != 0;
        if packet.len() < HEADER || packet.get(2).is_none_or(is_answer) {
            return Err(QueryError::Ignored);
        }
        if packet[2] >> 3 & 0x0f != 0 {
            return Err(QueryError::Answered(refusal(packet, NOTIMP)));
        }
        let malformed = |_| QueryError::Answered(refusal(packet, FORMERR));
        let message = Message::from_vec(packet).map_err(malformed)?;
        let [question] = message.queries.as_slice() else { return Err(malformed_by(packet)) };
        let query = Query { question: question.clone(), message };
        if query.message.edns.as_ref().is_some_and(|edns| edns.version() > 0) {
            return Err(QueryError::Answered(query.written(&query.response(ResponseCode::BADVERS))));
        }
        Ok(query)
    }

    /// The name in lower case without the last dot, if it can be one of the mesh.
    pub fn name(&self) -> Option<Vec<u8>> {
        if self.question.query_class() != DNSClass::IN {
            return None;
        }
        let mut name = Vec::with_capacity(64);
        for label in self.question.name().iter() {
            if label.contains(&b'.') {
                return None;
            }
            if !name.is_empty() {
                name.push(b'.');
            }
            name.extend(label.iter().map(u8::to_ascii_lowercase));
        }
        Some(name)
    }

    pub fn kind(&self) -> RecordType {
        self.question.query_type()
    }

    /// The name as it was asked for, for logs.
    pub fn shown(&self) -> String {
        self.question.name().to_ascii()
    }

    /// Bytes of an answer that the client takes in one packet.
    pub fn limit(&self) -> usize {
        let taken = self.message.edns.as_ref().map_or(PLAIN, Edns::max_payload);
        usize::from(taken.max(PLAIN))
    }

    /// Answers from the table. A name of the mesh has no records of other types, and that is an answer too.
    pub fn answer(&self, addresses: &Addresses, ttl: u32) -> Vec<u8> {
        let (v4, v6) = match self.kind() {
            RecordType::A => (true, false),
            RecordType::AAAA => (false, true),
            RecordType::ANY => (true, true),
            _ => (false, false),
        };
        let mut response = self.response(ResponseCode::NoError);
        response.metadata.authoritative = true;
        let v4 = addresses.v4.iter().filter(|_| v4).map(|address| IpAddr::V4(*address));
        let v6 = addresses.v6.iter().filter(|_| v6).map(|address| IpAddr::V6(*address));
        for address in v4.chain(v6) {
            let data = match address {
                IpAddr::V4(address) => RData::A(address.into()),
                IpAddr::V6(address) => RData::AAAA(address.into()),
            };
            response.add_answer(Record::from_rdata(self.question.name().clone(), ttl, data));
        }
        self.written(&response)
    }

    /// No resolver could say.
    pub fn failure(&self) -> Vec<u8> {
        self.written(&self.response(ResponseCode::ServFail))
    }

    /// An answer that fits into one packet: a longer one becomes the advice to ask over TCP.
    pub fn fitted(&self, answer: Vec<u8>) -> Vec<u8> {
        if answer.len() <= self.limit() {
            return answer;
        }
        let mut response = self.response(ResponseCode::from_low(code(&answer)));
        response.metadata.truncation = true;
        self.written(&response)
    }

    /// True if a packet answers this question when it was asked with the number `id`.
    pub fn is_answered_by(&self, id: u16, packet: &[u8]) -> bool {
        let read = || {
            let mut decoder = BinDecoder::new(packet);
            let header = Header::read(&mut decoder).ok()?;
            let question =
                (header.counts.queries > 0).then(|| Question::read(&mut decoder)).transpose().ok()?;
            Some((header, question))
        };
        let Some((header, question)) = read() else { return false };
        let about = match question {
            Some(question) => {
                question.name().eq_ignore_root(self.question.name())
                    && question.query_type() == self.question.query_type()
                    && question.query_class() == self.question.query_class()
            }
            // Some resolvers refuse without repeating the question.
            None => code(packet) != 0,
        };
        packet[2] & 0x80 != 0 && header.id == id && about
    }

    fn response(&self, code: ResponseCode) -> Message {
        let asked = &self.message.metadata;
        let mut response = Message::response(asked.id, OpCode::Query);
        response.metadata.response_code = code;
        response.metadata.recursion_desired = asked.recursion_desired;
        response.metadata.recursion_available = true;
        response.metadata.checking_disabled = asked.checking_disabled;
        response.add_query(self.question.clone());
        if let Some(asked) = &self.message.edns {
            let mut edns = Edns::new();
            edns.set_max_payload(WHOLE).set_version(0).set_dnssec_ok(asked.flags().dnssec_ok);
            response.set_edns(edns);
        }
        response
    }

    fn written(&self, response: &Message) -> Vec<u8> {
        // What was read can be written.
        response.to_vec().unwrap_or_else(|_| {
            let id = self.message.metadata.id.to_be_bytes();
            refusal(&[id[0], id[1], 0], SERVFAIL)
        })
    }
}

fn malformed_by(packet: &[u8]) -> QueryError {
    QueryError::Answered(refusal(packet, FORMERR))
}

/// An answer without a question, because the question could not be read.
fn refusal(packet: &[u8], code: u8) -> Vec<u8> {
    let mut answer = vec![0; HEADER];
    answer[..2].copy_from_slice(&packet[..2]);
    // It is an answer, to the same operation, and says whether recursion was asked for.
    answer[2] = 0x80 | packet[2] & 0x79;
    answer[3] = code;
    answer
}

/// Response code of an answer, without the extension of EDNS.
pub fn code(answer: &[u8]) -> u8 {
    answer.get(3).map_or(SERVFAIL, |flags| flags & 0x0f)
}

/// True if another resolver may know better.
pub fn is_refusal(answer: &[u8]) -> bool {
    matches!(code(answer), SERVFAIL | NOTIMP | REFUSED)
}

/// Puts a number in front of a message.
pub fn set_id(message: &mut [u8], id: [u8; 2]) {
    message[..2].copy_from_slice(&id);
}
