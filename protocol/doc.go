// Package protocol is the wire: frames, request and response headers, the record batch as a view on its bytes, and the client
// side of a connection. The messages themselves are kmsg's. It knows nothing of topics' meaning, files or time.
//
// # Record batch
//
// All numbers are big-endian; varints are zig-zag (protobuf's sint).
//
//	 0  8  base offset            not under the CRC, the broker's
//	 8  4  length                 of what follows this field
//	12  4  leader epoch           not under the CRC, the broker's
//	16  1  magic                  2
//	17  4  CRC-32C                of everything from 21 on
//	21  2  attributes             bits 0-2 codec, 3 log append time, 4 transactional, 5 control, 6 delete horizon
//	23  4  last offset delta
//	27  8  base timestamp         ms; the delete horizon with bit 6
//	35  8  largest timestamp      ms
//	43  8  producer id            -1 none
//	51  2  producer epoch         -1 none
//	53  4  base sequence          -1 none
//	57  4  number of records
//	61  …  records                compressed as one piece if there is a codec
//
//	record  length varint | attributes int8 | timestamp delta varlong | offset delta varint | key | value | headers
//	key     length varint, -1 null | bytes           (value alike)
//	headers count varint | { key (not null) | value }
//
// # Frames
//
//	size int32 | request header | body
//	request header   key int16 | version int16 | correlation id int32 | client id, nullable string | tags, in flexible versions
//	response header  correlation id int32 | tags, in flexible versions, but never for ApiVersions
//
// # Foreign bytes
//
// Nothing here allocates what a length from the wire claims. Frames grow as they arrive. A request's arrays are walked and
// paid for before kmsg decodes them (schema.go; the shapes of all requests are generated from kmsg's own decoders). Decompression streams through a
// window; Batch.Walk and Batch.Rebuild take constant memory however far a payload expands, and RecordReader holds one record.
//
// Invariant: a Batch that SplitBatch or AppendBatch returned is at least BatchHeaderLen long and its length field fits its slice.
//
// # Concurrency
//
// Values are owned by one goroutine, but Client, which any number may use. Decoders, encoders and windows come from pools.
package protocol
