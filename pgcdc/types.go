package pgcdc

// Kind is the representation that values of a PostgreSQL type have in the mirror.
type Kind uint8

const (
	KindInvalid     Kind = iota
	KindBool             // Sink.Bool
	KindInt2             // Sink.Int32
	KindInt4             // Sink.Int32
	KindInt8             // Sink.Int64
	KindOID              // Sink.Int64, 0 to 2^32−1
	KindFloat4           // Sink.Float32, every bit pattern kept but those of NaNs, which are one
	KindFloat8           // Sink.Float64, the same
	KindDecimal          // Sink.Decimal: numeric(p≤38, 0≤s≤p)
	KindText             // Sink.String: the text of the type's output function
	KindJSON             // Sink.String: json and jsonb, verbatim
	KindBytea            // Sink.Binary
	KindUUID             // Sink.UUID
	KindDate             // Sink.Date: days since 1970-01-01
	KindTime             // Sink.Time: microseconds since midnight
	KindTimestamp        // Sink.Timestamp: microseconds since 1970-01-01T00:00:00
	KindTimestampTZ      // Sink.Timestamp: the same, UTC
	KindList             // Sink.BeginList, elements, Sink.EndList: a one-dimensional array, or pgvector's vector and halfvec
)

// Type is a PostgreSQL type as a column uses it, resolved through domains to what is stored.
type Type struct {
	OID       uint32 // of the column's own type
	Mod       int32  // the column's typmod, −1 when there is none
	Name      string // as format_type prints it
	Kind      Kind
	Precision int   // KindDecimal
	Scale     int   // KindDecimal
	Elem      *Type // KindList
	// BinaryOK says that the value decoder reads what the type's send function writes. When one column of a publication
	// lacks it, the stream is asked for in text.
	BinaryOK bool
	// Unsupported is why the mirror cannot hold this type yet; empty when it can.
	Unsupported string

	base  uint32     // the OID whose send and output functions made the bytes
	form  binaryForm // KindText and KindJSON: what the send function writes; KindList: unset for an array; KindFloat8: formNumeric if a numeric is made a double
	delim byte       // KindList: what separates the elements in text
	exact bool       // KindList: an array that differs from another in its lower bound alone is not represented
}

// Sink takes one decoded value. Decode calls exactly one of its methods for a scalar, and for a list BeginList, one call
// for each element, then EndList. Byte slices are only lent.
type Sink interface {
	Null()
	Bool(bool)
	Int32(int32)
	Int64(int64)
	Float32(float32)
	Float64(float64)
	Decimal(hi int64, lo uint64) // two's complement, unscaled
	String([]byte)               // valid UTF-8
	Binary([]byte)
	UUID(*[16]byte)
	Date(days int32)
	Time(micros int64)
	Timestamp(micros int64)
	BeginList(elements int)
	EndList()
}

// Infinite dates and timestamps are the extreme values that DuckDB reads as infinity.
const (
	DateInfinity         int32 = 1<<31 - 1
	DateMinusInfinity    int32 = -(1<<31 - 1)
	TimestampInfinity    int64 = 1<<63 - 1
	TimestampNegInfinity int64 = -(1<<63 - 1)
)

// Textual says that the type is text or varchar, or a domain over one: a change from one such type to another that does not write the rows anew
// leaves the values as they are.
func (t *Type) Textual() bool {
	const text, varchar = 25, 1043
	return t.Kind == KindText && (t.base == text || t.base == varchar)
}
