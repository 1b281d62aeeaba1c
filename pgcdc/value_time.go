package pgcdc

import (
	"bytes"
	"encoding/binary"
	"math"
)

// The server counts days and microseconds from 2000-01-01.
const (
	microsPerDay    = 86_400_000_000
	postgresDays    = 10_957                      // from 1970-01-01 to 2000-01-01
	postgresMicros  = postgresDays * microsPerDay // the same
	reasonDate      = "it lies beyond the dates of the mirror"
	reasonTimestamp = "it lies beyond the timestamps of the mirror (year 294247)"
	reasonTime24    = "24:00:00 is no time of day"
)

func (t *Type) binaryDate(data []byte, s Sink) error {
	if len(data) != 4 {
		return t.malformed(FormatBinary)
	}
	switch days := int32(binary.BigEndian.Uint32(data)); days {
	case math.MaxInt32:
		s.Date(DateInfinity)
	case math.MinInt32:
		s.Date(DateMinusInfinity)
	default:
		return t.sinkDate(int64(days)+postgresDays, s)
	}
	return nil
}

func (t *Type) textDate(data []byte, s Sink) error {
	switch string(data) {
	case "infinity":
		s.Date(DateInfinity)
		return nil
	case "-infinity":
		s.Date(DateMinusInfinity)
		return nil
	}
	date, bc := bytes.CutSuffix(data, []byte(" BC"))
	days, rest, ok := parseDate(date, bc)
	if !ok || len(rest) != 0 {
		return t.malformed(FormatText)
	}
	return t.sinkDate(days, s)
}

// sinkDate hands over a finite date, in days since 1970.
func (t *Type) sinkDate(days int64, s Sink) error {
	if days <= int64(DateMinusInfinity) || days >= int64(DateInfinity) {
		return t.unrepresentable(reasonDate)
	}
	s.Date(int32(days))
	return nil
}

// sinkTime hands over a time of day, in microseconds.
func (t *Type) sinkTime(micros int64, format Format, s Sink) error {
	switch {
	case micros < 0 || micros > microsPerDay:
		return t.malformed(format)
	case micros == microsPerDay:
		return t.unrepresentable(reasonTime24)
	}
	s.Time(micros)
	return nil
}

func (t *Type) binaryTimestamp(data []byte, s Sink) error {
	if len(data) != 8 {
		return t.malformed(FormatBinary)
	}
	switch micros := int64(binary.BigEndian.Uint64(data)); {
	case micros == math.MaxInt64:
		s.Timestamp(TimestampInfinity)
	case micros == math.MinInt64:
		s.Timestamp(TimestampNegInfinity)
	case micros > math.MaxInt64-postgresMicros:
		return t.unrepresentable(reasonTimestamp)
	default:
		return t.sinkTimestamp(micros+postgresMicros, s)
	}
	return nil
}

func (t *Type) textTimestamp(data []byte, s Sink) error {
	switch string(data) {
	case "infinity":
		s.Timestamp(TimestampInfinity)
		return nil
	case "-infinity":
		s.Timestamp(TimestampNegInfinity)
		return nil
	}
	moment, bc := bytes.CutSuffix(data, []byte(" BC"))
	if t.Kind == KindTimestampTZ {
		var utc bool
		if moment, utc = bytes.CutSuffix(moment, []byte("+00")); !utc {
			return t.malformed(FormatText)
		}
	}
	days, rest, ok := parseDate(moment, bc)
	if !ok || len(rest) == 0 || rest[0] != ' ' {
		return t.malformed(FormatText)
	}
	clock, rest, ok := parseClock(rest[1:])
	if !ok || len(rest) != 0 || clock >= microsPerDay {
		return t.malformed(FormatText)
	}
	const daysMax = math.MaxInt64 / microsPerDay
	if days > daysMax || days < -daysMax || days > 0 && days*microsPerDay > math.MaxInt64-clock {
		return t.unrepresentable(reasonTimestamp)
	}
	return t.sinkTimestamp(days*microsPerDay+clock, s)
}

// sinkTimestamp hands over a finite timestamp, in microseconds since 1970.
func (t *Type) sinkTimestamp(micros int64, s Sink) error {
	if micros <= TimestampNegInfinity || micros >= TimestampInfinity {
		return t.unrepresentable(reasonTimestamp)
	}
	s.Timestamp(micros)
	return nil
}

// parseDate reads YYYY-MM-DD with four to seven digits of the year, in the proleptic Gregorian calendar, as days since
// 1970-01-01. The year before 1 is 1 BC.
func parseDate(data []byte, bc bool) (days int64, rest []byte, ok bool) {
	dash := bytes.IndexByte(data, '-')
	if dash < 4 || dash > 7 || len(data) < dash+6 || data[dash+3] != '-' {
		return 0, nil, false
	}
	year, yearOK := parseDigits(data[:dash])
	month, monthOK := parseDigits(data[dash+1 : dash+3])
	day, dayOK := parseDigits(data[dash+4 : dash+6])
	if !yearOK || !monthOK || !dayOK || year == 0 {
		return 0, nil, false
	}
	if bc {
		year = 1 - year
	}
	if month < 1 || month > 12 || day < 1 || day > daysIn(year, month) {
		return 0, nil, false
	}
	return daysSince1970(year, month, day), data[dash+6:], true
}

// parseClock reads HH:MM:SS[.ffffff] up to 24:00:00, as microseconds.
func parseClock(data []byte) (micros int64, rest []byte, ok bool) {
	if len(data) < 8 || data[2] != ':' || data[5] != ':' {
		return 0, nil, false
	}
	hour, hourOK := parseDigits(data[:2])
	minute, minuteOK := parseDigits(data[3:5])
	second, secondOK := parseDigits(data[6:8])
	if !hourOK || !minuteOK || !secondOK || minute > 59 || second > 59 {
		return 0, nil, false
	}
	micros = ((hour*60+minute)*60 + second) * 1_000_000
	rest = data[8:]
	if len(rest) > 0 && rest[0] == '.' {
		digits := 1
		for unit := int64(100_000); digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9'; digits++ {
			if unit == 0 {
				return 0, nil, false
			}
			micros += int64(rest[digits]-'0') * unit
			unit /= 10
		}
		if digits == 1 {
			return 0, nil, false
		}
		rest = rest[digits:]
	}
	return micros, rest, micros <= microsPerDay
}

// parseDigits reads decimal digits only, few enough not to overflow.
func parseDigits(data []byte) (value int64, ok bool) {
	for _, c := range data {
		if c < '0' || c > '9' {
			return 0, false
		}
		value = value*10 + int64(c-'0')
	}
	return value, true
}

func daysIn(year, month int64) int64 {
	switch month {
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// daysSince1970 counts with years that begin in March, so that the leap day ends them: 146,097 days in 400 years, and
// 153 days in the five months from March and from August.
func daysSince1970(year, month, day int64) int64 {
	month -= 3
	if month < 0 {
		month += 12
		year--
	}
	era := year / 400
	if year < 0 {
		era = (year - 399) / 400
	}
	year -= era * 400
	const marchFirstYear0To1970 = 719_468
	return era*146_097 + year*365 + year/4 - year/100 + (153*month+2)/5 + day - 1 - marchFirstYear0To1970
}
