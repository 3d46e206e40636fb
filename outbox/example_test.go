package outbox_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/postrider/postrider/outbox"
)

// OrderPlaced is an event of the example shop.
type OrderPlaced struct {
	Order int `json:"order"`
}

// A service publishes inside its own transaction: the message is sent if, and
// only if, the order is stored.
func ExampleOutbox_Publish() {
	ctx := context.Background()
	db := &fakeDB{} // a store: sqlstore or one of your own

	types := outbox.NewTypes()
	if err := outbox.Register(types, "shop.order.placed", 1, outbox.JSON[OrderPlaced]()); err != nil {
		fmt.Println(err)
		return
	}
	ob, err := outbox.New(db, &outbox.Options{Types: types, Transport: "default", Source: "/shop/orders"})
	if err != nil {
		fmt.Println(err)
		return
	}

	tx, err := db.Begin(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	tx.exec("INSERT INTO orders ...") // first: it locks what the message is about
	_, err = ob.Publish(ctx, tx, outbox.Publication{
		Value: OrderPlaced{Order: 7},
		Message: outbox.Message{
			Destination: "shop.orders.placed",
			Key:         []byte("customer-42"), // in order per customer
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := db.Commit(ctx, tx); err != nil {
		fmt.Println(err)
		return
	}

	for _, rec := range db.rows() {
		fmt.Println(rec.Type, "to", rec.Message.Destination+":", string(rec.Message.Body))
	}
	// Output: shop.order.placed.v1 to shop.orders.placed: {"order":7}
}

// ShipmentSent stands for a message that protoc-gen-go has made.
type ShipmentSent struct{ Parcel uint64 }

// Marshal and Unmarshal have the form of proto.Marshal and proto.Unmarshal.
func Marshal(m *ShipmentSent) ([]byte, error) {
	return binary.AppendUvarint([]byte{1 << 3}, m.Parcel), nil
}

func Unmarshal(b []byte, m *ShipmentSent) error {
	if len(b) < 2 || b[0] != 1<<3 {
		return errors.New("not a ShipmentSent")
	}
	m.Parcel, _ = binary.Uvarint(b[1:])
	return nil
}

// A codec is two functions, so every format fits. With protobuf they are
// proto.Marshal and proto.Unmarshal, for any of its message types:
//
//	func Proto[T any, M interface { *T; proto.Message }]() outbox.Codec[M] {
//		return outbox.Codec[M]{
//			ContentType: "application/protobuf",
//			Encode:      func(m M) ([]byte, error) { return proto.Marshal(m) },
//			Decode: func(b []byte) (M, error) {
//				m := M(new(T))
//				return m, proto.Unmarshal(b, m)
//			},
//		}
//	}
func ExampleCodec_protobuf() {
	types := outbox.NewTypes()
	err := outbox.Register(types, "shop.shipment.sent", 1, outbox.Codec[*ShipmentSent]{
		ContentType: "application/protobuf",
		Encode:      func(m *ShipmentSent) ([]byte, error) { return Marshal(m) },
		Decode: func(b []byte) (*ShipmentSent, error) {
			m := new(ShipmentSent)
			return m, Unmarshal(b, m)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	m, err := outbox.Decode[*ShipmentSent](types, "shop.shipment.sent.v1", []byte{0x08, 0x96, 0x01})
	fmt.Println(m.Parcel, err)

	_, err = outbox.Decode[*ShipmentSent](types, "shop.shipment.sent.v1", []byte{0xff})
	fmt.Println(err)
	// Output:
	// 150 <nil>
	// decode "shop.shipment.sent.v1": not a ShipmentSent
}

// The unit of work begins, commits and rolls back, and writes the messages as
// its last statement. Code that knows the context only takes part in it.
func ExampleUnitOfWork() {
	db := &fakeDB{} // a store and a Beginner of your database library
	types := outbox.NewTypes()
	if err := outbox.Register(types, "shop.order.placed", 1, outbox.JSON[OrderPlaced]()); err != nil {
		fmt.Println(err)
		return
	}
	ob, err := outbox.New(db, &outbox.Options{Types: types, Transport: "default", Source: "/shop/orders"})
	if err != nil {
		fmt.Println(err)
		return
	}
	wake := func() { fmt.Println("committed") } // relay.Wake
	unit, err := outbox.NewUnitOfWork(ob, db, &outbox.UnitOptions{Committed: wake})
	if err != nil {
		fmt.Println(err)
		return
	}

	announce := func(ctx context.Context, order int) error {
		_, err := unit.Publish(ctx, outbox.Publication{
			Value:   OrderPlaced{Order: order},
			Message: outbox.Message{Destination: "shop.orders.placed", Key: []byte("customer-42")},
		})
		return err
	}
	place := func(order int, stock bool) error {
		return unit.Do(context.Background(), func(ctx context.Context, tx *fakeTx) error {
			if err := announce(ctx, order); err != nil {
				return err
			}
			if !stock {
				return errors.New("out of stock")
			}
			tx.exec("INSERT INTO orders ...")
			return nil
		})
	}

	fmt.Println(place(7, true))
	fmt.Println(place(8, false))
	fmt.Println(len(db.rows()), "message:", string(db.rows()[0].Message.Body))
	// Output:
	// committed
	// <nil>
	// out of stock
	// 1 message: {"order":7}
}
