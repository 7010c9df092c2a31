package main

import "fmt"

// The three trades, in the order in which an order passes through them.
var (
	stock = Trade{
		Name: "stock", Home: "http://127.0.0.1:9101", Things: "reservations", Refusal: "out of stock",
		Act: func(o Order) string { return fmt.Sprintf("%d x %s put aside", o.Quantity, o.SKU) },
	}
	payment = Trade{
		Name: "payment", Home: "http://127.0.0.1:9102", Things: "charges", Refusal: "card declined",
		Act: func(o Order) string {
			return fmt.Sprintf("%d.%02d taken from %s", o.Amount/100, o.Amount%100, o.Customer)
		},
	}
	shipping = Trade{
		Name: "shipping", Home: "http://127.0.0.1:9103", Things: "parcels", Refusal: "no such address",
		Act: func(o Order) string { return fmt.Sprintf("sent to %s, %s", o.Customer, o.Address) },
	}
	trades = []Trade{stock, payment, shipping}
)

// Trade is what a service does with an order.
type Trade struct {
	Name    string
	Home    string // the default address
	Things  string // the name of its resources in URLs
	Refusal string // why it refuses an order permanently
	Act     func(Order) (receipt string)
}
