package pgcdc

import (
	"encoding/binary"
	"strconv"
)

// Address families in the binary form of inet and cidr (utils/inet.h).
const (
	familyIPv4 = 2
	familyIPv6 = 3
)

// appendInet prints an inet or cidr as inet_out and cidr_out do: the address, and the netmask's length unless it is an
// inet's whole address.
func appendInet(to, data []byte) ([]byte, bool) {
	if len(data) < 4 || len(data) != 4+int(data[3]) {
		return to, false
	}
	family, netmask, isCIDR, address := data[0], int(data[1]), data[2], data[4:]
	if isCIDR > 1 || netmask > 8*len(address) {
		return to, false
	}
	switch {
	case family == familyIPv4 && len(address) == 4:
		to = appendIPv4(to, address)
	case family == familyIPv6 && len(address) == 16:
		to = appendIPv6(to, address)
	default:
		return to, false
	}
	if isCIDR == 1 || netmask < 8*len(address) {
		to = strconv.AppendUint(append(to, '/'), uint64(netmask), 10)
	}
	return to, true
}

func appendIPv4(to, address []byte) []byte {
	for i, octet := range address {
		if i > 0 {
			to = append(to, '.')
		}
		to = strconv.AppendUint(to, uint64(octet), 10)
	}
	return to
}

// appendIPv6 shortens the first of the longest runs of two or more zero words, and ends addresses that stand for IPv4
// ones in dotted form (inet_net_ntop_ipv6 in inet_net_ntop.c; net/netip shortens other addresses).
func appendIPv6(to, address []byte) []byte {
	var words [8]uint64
	for i := range words {
		words[i] = uint64(binary.BigEndian.Uint16(address[2*i:]))
	}
	from, length := -1, 1
	for i := 0; i < len(words); i++ {
		run := 0
		for i+run < len(words) && words[i+run] == 0 {
			run++
		}
		if run > length {
			from, length = i, run
		}
		i += run
	}
	dotted := from == 0 && (length == 6 || length == 7 && words[7] != 1 || length == 5 && words[5] == 0xffff)
	for i := 0; i < len(words); i++ {
		if i == from {
			to = append(to, "::"...)
			i += length - 1
			continue
		}
		if i > 0 && i != from+length {
			to = append(to, ':')
		}
		if dotted && i == 6 {
			return appendIPv4(to, address[12:])
		}
		to = strconv.AppendUint(to, words[i], 16)
	}
	return to
}

// appendMACAddr prints a macaddr or macaddr8, by the number of octets it has.
func appendMACAddr(to, data []byte, octets int) ([]byte, bool) {
	if len(data) != octets {
		return to, false
	}
	const digits = "0123456789abcdef"
	for i, octet := range data {
		if i > 0 {
			to = append(to, ':')
		}
		to = append(to, digits[octet>>4], digits[octet&15])
	}
	return to, true
}
