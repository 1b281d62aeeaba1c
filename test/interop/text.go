package interop

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/google/uuid"
)

// ArrowRows gives the rows of a record batch in the textual form of the package.
func ArrowRows(record arrow.RecordBatch) ([]Row, error) {
	rows := make([]Row, record.NumRows())
	for i := range rows {
		rows[i] = make(Row, record.NumCols())
		for c, column := range record.Columns() {
			text, err := arrowText(column, i)
			if err != nil {
				return nil, fmt.Errorf("column %s: %w", record.ColumnName(c), err)
			}
			rows[i][c] = text
		}
	}
	return rows, nil
}

func arrowText(values arrow.Array, i int) (string, error) {
	if values.IsNull(i) {
		return "null", nil
	}
	switch a := values.(type) {
	case *array.Boolean:
		return strconv.FormatBool(a.Value(i)), nil
	case *array.Int32:
		return strconv.Itoa(int(a.Value(i))), nil
	case *array.Int64:
		return strconv.FormatInt(a.Value(i), 10), nil
	case *array.Float32:
		return floatText(float64(a.Value(i)), uint64(math.Float32bits(a.Value(i))), 8), nil
	case *array.Float64:
		return floatText(a.Value(i), math.Float64bits(a.Value(i)), 16), nil
	case *array.Decimal128:
		return a.Value(i).ToString(a.DataType().(*arrow.Decimal128Type).Scale), nil
	case *array.String:
		return quote(a.Value(i)), nil
	case *array.LargeString:
		return quote(a.Value(i)), nil
	case *array.Binary:
		return `\x` + hex.EncodeToString(a.Value(i)), nil
	case *array.LargeBinary:
		return `\x` + hex.EncodeToString(a.Value(i)), nil
	case *extensions.UUIDArray:
		return a.Value(i).String(), nil
	case *array.FixedSizeBinary:
		id, err := uuid.FromBytes(a.Value(i))
		return id.String(), err
	case *array.Date32:
		return strconv.Itoa(int(a.Value(i))), nil
	case *array.Time64:
		return micros(int64(a.Value(i)), a.DataType().(*arrow.Time64Type).Unit)
	case *array.Timestamp:
		return micros(int64(a.Value(i)), a.DataType().(*arrow.TimestampType).Unit)
	case array.ListLike:
		from, to := a.ValueOffsets(i)
		elements := make([]string, 0, to-from)
		for e := from; e < to; e++ {
			text, err := arrowText(a.ListValues(), int(e))
			if err != nil {
				return "", err
			}
			elements = append(elements, text)
		}
		return "[" + strings.Join(elements, ",") + "]", nil
	}
	return "", fmt.Errorf("no text form for type %s", values.DataType())
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func floatText(value float64, bits uint64, digits int) string {
	if math.IsNaN(value) {
		return "nan"
	}
	return fmt.Sprintf("0x%0*x", digits, bits)
}

func micros(value int64, unit arrow.TimeUnit) (string, error) {
	if unit != arrow.Microsecond {
		return "", fmt.Errorf("not microseconds: %s", unit)
	}
	return strconv.FormatInt(value, 10), nil
}
